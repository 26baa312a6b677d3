"""Attached tables: LanceDB tables that others write, read as if they were a collection's own.

A collection's reader asks for our columns, in our SQL. `column_mapping` finds and checks the other table's
columns and writes our SQL in terms of them. `attached_table` runs such a query, and makes rows of ours of
the result. So a search reads an attached table like any other; nothing is copied, and nothing
here can write.
"""
