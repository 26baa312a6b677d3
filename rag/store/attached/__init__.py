"""Attached tables: LanceDB tables that others write, read as if they were a collection's own.

A collection's reader asks for our columns, in our SQL. `translate` writes the SQL in terms of the other
table's columns, which `columns` finds and checks, and `table` turns the rows into rows of ours. So a search
reads an attached table like any other; nothing is copied, and nothing here can write.
"""
