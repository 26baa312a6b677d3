"""Metadata filters: a closed JSON grammar over declared fields, parsed once, then compiled or evaluated.

    {"status": "final", "year": {"$gte": 2020}, "$not": {"tags": {"$in": ["draft", "old"]}}}

`parse` makes a typed tree and refuses whatever is not in the grammar; `predicate` compiles the tree
for the engine, `matches` evaluates it in Python. The two agree on every input, and logic has two
values: a field that a source lacks satisfies only `$ne`, `$nin`, `$exists: false` and `$not`.
"""
