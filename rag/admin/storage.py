"""`refdesk-admin storage`: bring a desk to a bucket of an object store."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click
from pydantic import ValidationError

from rag.admin.console import command, echo, print_json
from rag.config.data_folder import check_data_folder
from rag.config.storage import StorageSettings
from rag.errors import ConfigurationError
from rag.store.bucket_copy import copy_rights, copy_to_bucket

if TYPE_CHECKING:
    from rag.config.settings import Settings
    from rag.home import Bucket


@click.group("storage")
def storage_command() -> None:
    """Keep a desk in a bucket of an object store.

    Any number of servers read it there. Options of the store are in [storage.options]. Credentials come from
    the environment: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AZURE_STORAGE_ACCOUNT_KEY, or
    GOOGLE_SERVICE_ACCOUNT.
    """


@command("copy", of_tenant=False, on_bucket=True)
@click.option("--to", "uri", required=True, metavar="URI", help="Bucket and prefix, like s3://bucket/desk.")
@click.option("--access-only", is_flag=True, help="Only keys and rights, at once, also during an ingestion.")
async def copy_command(settings: Settings, *, uri: str, access_only: bool, as_json: bool) -> None:
    """Copy the desk in the data folder to a bucket.

    Servers read it whose storage.uri names the bucket. Repeat it after each change: it sends only what
    differs, and servers see that within storage.consistency_seconds. A bucket that holds something else is
    left alone. Each object is read back, and the rows of all tables are counted. Nobody can ingest meanwhile,
    but rights and keys can be changed, and are copied, too. --access-only copies nothing else, and waits for
    nobody.
    """
    check_data_folder(settings.data)
    if access_only:
        sent = await copy_rights(settings.data, _bucket(settings, uri))
        if as_json:
            print_json({"to": uri, "sent": sent})
        else:
            echo(f"Copied the keys and rights in {settings.data} to {uri}: sent {sent} objects.")
        return
    copied = await copy_to_bucket(settings.data, _bucket(settings, uri))
    if as_json:
        print_json({"to": uri} | asdict(copied))
        return
    echo(f"Copied {settings.data} to {uri}: {copied.objects} objects, {copied.bytes / 1e6:.1f} MB.")
    same = f"all objects and the rows of {len(copied.rows)} tables are the same"
    echo(f"Sent {copied.sent}, deleted {copied.deleted}; {same}.")


def _bucket(settings: Settings, uri: str) -> Bucket:
    try:
        options = settings.storage.options.model_dump()
        bucket = StorageSettings.model_validate({"uri": uri, "options": options}).bucket
    except ValidationError as error:
        raise click.UsageError("--to takes a bucket and a prefix like s3://bucket/desk.") from error
    if bucket is None:
        raise ConfigurationError("--to is empty. Name a bucket and a prefix like s3://bucket/desk.")
    return bucket


storage_command.add_command(copy_command)
