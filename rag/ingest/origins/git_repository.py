"""Reads the files of a git repository at a ref from its objects, never from a work tree.

No hook, filter, pager or external program of the repository runs, and only the ref is fetched: a repository
and its configuration can be hostile. A file with an unchanged blob is not read again, unless its name didn't
tell its type and its content was none of ours.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import anyio

from rag.config.origin_settings import GitOrigin
from rag.errors import ConfigurationError
from rag.ingest.origins.guarded_http import too_large
from rag.ingest.origins.origin_look import FetchError, OriginContext, OriginFindings, RefusedError
from rag.originals import SIDECAR_BYTES, SIDECAR_SUFFIX

GIT_SECONDS = 3600.0  # for a clone, a fetch and the list of files, of a history of gigabytes
LFS = b"version https://git-lfs.github.com/spec/"
OPTIONS = (
    *("--no-pager", "--no-optional-locks", "--no-replace-objects", "--literal-pathspecs"),
    *("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "log.showSignature=false"),
    *("-c", "gc.autoDetach=false", "-c", "transfer.fsckObjects=true", "-c", "fetch.recurseSubmodules=false"),
    *("-c", "credential.interactive=false", "-c", "core.askPass=", "-c", "submodule.recurse=false"),
)
_KINDS = {"120000": "a link", "160000": "a submodule"}


class _TreeEntry(NamedTuple):
    """A file of the tree: its mode, blob and bytes."""

    mode: str
    blob: str
    size: int


async def look_through_repository(
    origin: GitOrigin, context: OriginContext, folder: Path, environment: Mapping[str, str]
) -> OriginFindings:
    """Discover the files of a git origin at its ref. A clone is kept in `folder`.

    Raises:
        ConfigurationError: git is not installed, or `repository` is not a repository.
        FetchError: the repository or the ref can't be read.
    """
    try:
        with anyio.fail_after(GIT_SECONDS):
            git = await _open_repository(origin, folder, environment)
            return await _discover(git, origin, context)
    except TimeoutError as error:
        raise FetchError(f"git was not done within {GIT_SECONDS:g} seconds") from error


async def _discover(git: _Git, origin: GitOrigin, context: OriginContext) -> OriginFindings:
    findings = OriginFindings()
    findings.discovery.whole.add(context.prefix)
    tree = await git.tree(origin.folder)
    dates = await git.dates(origin.folder) if origin.dates else {}
    for path, entry in tree.items():
        if path.endswith(SIDECAR_SUFFIX) or not context.is_wanted(path):
            continue
        if entry.mode in _KINDS:
            findings.ignored_for(path, _KINDS[entry.mode])
        elif not context.may_read(path):
            findings.ignored(path, context.uri(path))
        else:
            stated = {"date": dates[path]} if path in dates else {}
            read = partial(_contents, git, path, tree, context)
            await findings.take(context, path, _token(path, tree, dates), read, stated)
            if findings.state.get(path, {}).get("other"):
                del findings.state[path]  # reading it again costs nothing
    return findings


async def _contents(
    git: _Git, path: str, tree: Mapping[str, _TreeEntry], context: OriginContext
) -> tuple[bytes, bytes]:
    """The bytes of a file and of its sidecar.

    Raises:
        RefusedError: one of them is too large, or its content isn't in the repository.
    """
    entry, sidecar = tree[path], tree.get(path + SIDECAR_SUFFIX)
    if entry.size > context.most_bytes(path):
        raise too_large(context.most_bytes(path))
    if sidecar and (sidecar.mode in _KINDS or sidecar.size > SIDECAR_BYTES):
        raise RefusedError(f"its {SIDECAR_SUFFIX} file is too large, or no file")
    data = await git.blob(entry.blob)
    if data.startswith(LFS):
        raise RefusedError("its content is in Git LFS, which is not read")
    return data, await git.blob(sidecar.blob) if sidecar else b""


def _token(path: str, tree: Mapping[str, _TreeEntry], dates: Mapping[str, str]) -> str:
    sidecar = tree.get(path + SIDECAR_SUFFIX)
    return " ".join((tree[path].blob, sidecar.blob if sidecar else "", dates.get(path, ""))).strip()


async def _open_repository(origin: GitOrigin, folder: Path, environment: Mapping[str, str]) -> _Git:
    """The repository, which is cloned or brought up to date if it is elsewhere."""
    if origin.repository.startswith("/"):
        local = _Git(origin.repository, _environment(environment, "none", origin.repository))
        return await local.at(f"{origin.ref}^{{commit}}")
    clone = _Git(str(folder), _environment(environment, "https:ssh", str(folder)))
    await anyio.Path(folder).mkdir(mode=0o700, parents=True, exist_ok=True)
    await clone.run("init", "--quiet", "--bare", "--template=", ".")
    depth = () if origin.dates else ("--depth=1",)  # dates are in the whole history
    quiet = ("--quiet", "--no-tags", "--no-recurse-submodules", "--force", *depth)
    await clone.run("fetch", *quiet, "--end-of-options", origin.repository, origin.ref)
    return await clone.at("FETCH_HEAD^{commit}")


def _environment(variables: Mapping[str, str], protocols: str, folder: str) -> dict[str, str]:
    """The environment for git: no prompts, and no other protocol or repository."""
    inherited = {
        name: value for name, value in variables.items() if not name.startswith("GIT_") or name in _KEPT
    }
    return {
        "GIT_SSH_COMMAND": "ssh -oBatchMode=yes",
        **inherited,
        "SSH_ASKPASS_REQUIRE": "never",
        "GIT_ALLOW_PROTOCOL": protocols,
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_CEILING_DIRECTORIES": os.path.dirname(folder.rstrip("/")) or "/",  # noqa: PTH120 a plain string
        "LC_ALL": "C",
    }


_KEPT = frozenset({"GIT_SSH_COMMAND", "GIT_SSL_CAINFO", "GIT_SSL_CAPATH", "GIT_CONFIG_GLOBAL"})


@dataclass(frozen=True, slots=True)
class _Git:
    """git in one repository, at one commit."""

    folder: str
    environment: Mapping[str, str]
    commit: str = ""

    async def run(self, *arguments: str, stdin: bytes = b"") -> bytes:
        """The output of a git command.

        Raises:
            ConfigurationError: git is not installed.
            FetchError: it failed.
        """
        command = ["git", *OPTIONS, "-C", self.folder, *arguments]
        try:
            done = await anyio.run_process(
                command,
                input=stdin,
                env=self.environment,
                check=False,
                start_new_session=True,  # without a terminal, ssh can't prompt, whatever its settings
            )
        except FileNotFoundError as error:
            raise ConfigurationError(
                "The command git is not installed. An origin of type git needs it."
            ) from error
        if done.returncode:
            message = done.stderr.decode("utf-8", "replace")
            reason = _why_ssh(message, arguments[-2]) if arguments[0] == "fetch" else ""
            raise FetchError(reason or _why(arguments[0], message))
        return done.stdout

    async def at(self, ref: str) -> _Git:
        """The repository at a ref."""
        result = await self.run("rev-parse", "--verify", "--quiet", "--end-of-options", ref)
        return _Git(self.folder, self.environment, result.decode().strip())

    async def tree(self, below: str) -> dict[str, _TreeEntry]:
        """The files below a folder by their path below it, in the order of names."""
        tree = f"{self.commit}:{below.rstrip('/')}"
        entries = {}
        for line in (await self.run("ls-tree", "-r", "-z", "-l", "--full-tree", tree)).split(b"\0"):
            about, _, path = line.partition(b"\t")
            if path:
                mode, _, blob, size = about.decode().split()
                entries[os.fsdecode(path)] = _TreeEntry(mode, blob, int(size) if size.isdecimal() else 0)
        return entries

    async def blob(self, id_: str) -> bytes:
        """The content of a blob."""
        return await self.run("cat-file", "blob", id_)

    async def dates(self, below: str) -> dict[str, str]:
        """The date of the last commit that changed each file, by its path below the folder."""
        head = below.rstrip("/") + "/" if below else ""
        log = ("log", "-z", "--format=%x00%cI", "--name-only", "--no-renames", "--no-show-signature", "-m")
        dates: dict[str, str] = {}
        day, is_day = "", False
        listed = await self.run(*log, self.commit, *(("--", below) if below else ()))
        for part in listed.split(b"\0"):
            if not part:
                is_day = True
                continue
            if is_day:
                day, is_day = part.decode().partition("\n")[0], False
            else:
                path = os.fsdecode(part.removeprefix(b"\n"))
                if path.startswith(head):
                    dates.setdefault(path.removeprefix(head), day)
        return dates


def _why_ssh(error: str, repository: str) -> str:
    """Why ssh got no connection, and what to do about it; "" if that is not the reason."""
    if repository.startswith("https:"):
        return ""
    parts = urlsplit(repository if "://" in repository else "ssh://" + repository.replace(":", "/", 1))
    host, port, user = parts.hostname or "", parts.port, parts.username
    where = (f"-p {port} " if port else "") + (f"{user}@" if user else "") + host
    if "HOST IDENTIFICATION HAS CHANGED" in error:
        noted = f"[{host}]:{port}" if port else host
        return (
            f"the key of {host} is another one than the one that is known. Ask its administrator; if the key "
            f"was changed, run ssh-keygen -R '{noted}' and then ssh -T {where}, and compare the new key"
        )
    if "Host key verification failed" in error:
        return (
            f"the key of {host} is not known to ssh; run ssh -T {where} once as the user that runs "
            "refdesk-admin, and compare the key that it shows"
        )
    if "Permission denied" in error:
        return f"the host accepts none of your keys; ssh -T {where} must work without a question (ssh-add -l)"
    return ""


_REASONS = {
    "dubious ownership": "the repository belongs to another user; allow it with git config --global "
    "safe.directory",
    "not a git repository": "it is not a git repository",
    "cannot change to": "its folder is not on this machine, or can't be opened",
}
"""Messages of git, and the same in our own words."""


def _why(command: str, error: str) -> str:
    """Why git failed, in our own words."""
    if reason := next((reason for words, reason in _REASONS.items() if words in error), ""):
        return reason
    # A missing ref is not fatal to rev-parse; a repository that it can't read is.
    if (command == "rev-parse" and "fatal:" not in error) or "couldn't find remote ref" in error:
        return "the repository has no such branch, tag or commit (ref)"
    if command == "ls-tree":
        return "the commit has no such folder"
    if command == "fetch":
        return "the repository can't be fetched: check its URL, the network and the credentials of git"
    return "git can't read the repository"
