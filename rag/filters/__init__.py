"""Metadata filters: a closed JSON grammar over declared fields, parsed into a tree with two evaluators.

    {"status": "final", "year": {"$gte": 2020}, "$not": {"tags": {"$in": ["draft", "old"]}}}

`parse_filter` checks the JSON and builds a typed tree. `predicate` compiles the tree to SQL, so the engine
can use its indexes. `matches` evaluates it in Python; it is the definition that tests hold the SQL to,
since SQL's null values are easy to get wrong. Both have two-valued logic: a field that a source lacks
satisfies only `$ne`, `$nin`, `$exists: false` and `$not`.
"""
