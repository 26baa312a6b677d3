"""`refdesk-admin storage`: bring a desk to a bucket of an object store, and back."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click
from pydantic import ValidationError

from rag.admin.console import Group, command, echo, print_json
from rag.config.settings import StorageSettings
from rag.errors import ConfigurationError
from rag.home import check_data_folder
from rag.store.bucket.bucket_copy import copy_rights, copy_to_bucket
from rag.store.bucket.bucket_fetch import fetch_from_bucket

if TYPE_CHECKING:
    from rag.config.settings import Settings
    from rag.home import Bucket


@click.group("storage", cls=Group)
def storage_command() -> None:
    """Keep a desk in a bucket of an object store.

    Any number of servers read it there. Options of the store are in [storage.options]. Credentials come from
    the environment: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AZURE_STORAGE_ACCOUNT_KEY, or
    GOOGLE_SERVICE_ACCOUNT.
    """


@command("copy", of_tenant=False, on_bucket=True)
@click.option("--to", "uri", required=True, metavar="URI", help="Bucket and prefix, like s3://bucket/desk.")
@click.option("--access-only", is_flag=True, help="Only keys and rights, at once, also during an ingestion.")
@click.option("--replace", is_flag=True, help="Also over what was copied there from another data folder.")
async def copy_command(
    settings: Settings, *, uri: str, access_only: bool, replace: bool, as_json: bool
) -> None:
    """Copy the desk in the data folder to a bucket.

    Servers read it whose storage.uri names the bucket. Repeat it after each change: it sends only what
    differs, and servers see that within storage.consistency_seconds. A bucket that holds something else is
    left alone. Each object is read back, and the rows of all tables are counted. Nobody can ingest meanwhile,
    but rights and keys can be changed, and are copied, too. --access-only copies nothing else, and waits for
    nobody.

    Only one folder is copied to a bucket. Once another one was, after storage fetch or a restore, copies from
    the former one are refused, unless you --replace what the other one has changed.
    """
    if replace and access_only:
        raise click.UsageError("--replace takes a copy of everything, so leave out --access-only.")
    check_data_folder(settings.data)
    if access_only:
        sent = await copy_rights(settings.data, _bucket(settings, uri))
        if as_json:
            print_json({"to": uri, "sent": sent})
        else:
            echo(f"Copied the keys and rights in {settings.data} to {uri}: sent {sent} objects.")
        return
    copied = await copy_to_bucket(settings.data, _bucket(settings, uri), replace=replace)
    if as_json:
        print_json({"to": uri} | asdict(copied))
        return
    echo(f"Copied {settings.data} to {uri}: {copied.objects} objects, {copied.bytes / 1e6:.1f} MB.")
    same = f"all objects and the rows of {len(copied.rows)} tables are the same"
    echo(f"Sent {copied.sent}, deleted {copied.deleted}; {same}.")


@command("fetch", of_tenant=False, on_bucket=True)
@click.option("--from", "uri", required=True, metavar="URI", help="Bucket and prefix, like s3://bucket/desk.")
async def fetch_command(settings: Settings, *, uri: str, as_json: bool) -> None:
    """Fetch the desk in a bucket into a new data folder.

    For a machine that takes the place of the one that ingests, or that keeps nothing between two runs: fetch,
    sync, copy. Each object is compared with what was copied. If it is interrupted, run it again.
    """
    fetched = await fetch_from_bucket(_bucket(settings, uri), settings.data)
    if as_json:
        print_json({"from": uri} | asdict(fetched))
        return
    size, documents = fetched.bytes / 1e6, sum(fetched.documents.values())
    echo(
        f"Fetched {uri} into {settings.data}: {documents} documents in {len(fetched.documents)} collections, "
        f"{fetched.objects} objects, {size:.1f} MB."
    )
    echo(
        "Settings, models, the audit log and the cache of embeddings are in no bucket, so they are not here. "
        f"After changes, run refdesk-admin storage copy --to {uri}; from then on, copies from the former "
        "data folder are refused."
    )


def _bucket(settings: Settings, uri: str) -> Bucket:
    try:
        options = settings.storage.options.model_dump()
        bucket = StorageSettings.model_validate({"uri": uri, "options": options}).bucket
    except ValidationError as error:
        raise click.UsageError(f"{uri} is not a bucket and a prefix like s3://bucket/desk.") from error
    if bucket is None:
        raise ConfigurationError("The address is empty. Name a bucket and a prefix like s3://bucket/desk.")
    return bucket


for one in (copy_command, fetch_command):
    storage_command.add_command(one)
