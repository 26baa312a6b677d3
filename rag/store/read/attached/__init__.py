"""Attached tables: LanceDB tables that others write, read as if they were a collection's own.

A collection's reader asks for our columns, in our SQL. `column_mapping` writes that in terms of the other
table's columns. `attached_table` runs such a query, and makes rows of ours of the result.
"""
