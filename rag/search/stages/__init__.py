"""The stages of a profile: what adds queries, and what orders, drops or expands hits."""
