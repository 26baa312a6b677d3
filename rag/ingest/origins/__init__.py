"""Origins other than folders: web pages, git repositories, S3 buckets, records from a pipe."""
