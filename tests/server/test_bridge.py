"""Several hosts of a person share a desk, and none of them notices: whatever the others do, or the desk."""

from __future__ import annotations

import fcntl
import json
import os
import random
import re
import select
import socket
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from hypothesis import settings

from rag.config.settings import Settings
from server import bridge
from server.host_log import LOST
from server.shared_desk import MAX_SESSIONS, variables_that_count
from server.stdio import MAX_MESSAGE_BYTES
from tests.server.conftest import HANDSHAKE, call, message

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import Scripts
    from tests.server.conftest import Message, Start, Wire, World

pytestmark = pytest.mark.slow

BY_DAY = settings.default.max_examples < 100  # type: ignore[union-attr]  # there always is one
KILLS = 4 if BY_DAY else 300
MEMORY_BYTES = 20_000_000  # of a bridge
ALONE = "refdesk serves this host alone, because "
SECONDS = 60  # a bound for what never takes as long

PEOPLE: dict[str, tuple[tuple[str, ...], set[str]]] = {
    "ann": (("--tenant", "acorn", "--user", "ann", "--group", "hr"), {"open", "secret"}),
    "bob": (("--tenant", "acorn", "--user", "bob"), {"open"}),
    "namesake": (("--tenant=birch", "--user=ann", "--group=hr"), {"theirs"}),
}
"""The flags of each person, and the titles that they may see."""


@pytest.fixture
def folder(socket_folder: Path) -> Path:
    return socket_folder


@pytest.fixture
def host(bridged: Start) -> Start:
    return bridged


def until(condition: Callable[[], object]) -> None:
    ends = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < ends
        time.sleep(0.1)


def kill(desks: Callable[[], list[psutil.Process]]) -> None:
    for desk in desks():
        desk.kill()
    until(lambda: not desks())


def search(wire: Wire, id_: int, query: str = "pendulum") -> None:
    wire.send(id_, "tools/call", {"name": "search", "arguments": {"query": query, "limit": 50}})


def titles(answer: Message) -> set[str]:
    return {hit["cite_as"] for hit in answer["result"]["structuredContent"]["results"]}


def titles_found(wire: Wire, query: str = "pendulum") -> set[str]:
    search(wire, 1, query)
    answer = wire.read()
    assert answer["id"] == 1
    return titles(answer)


def leave_silently(*wires: Wire) -> None:
    for wire in wires:
        assert wire.leave(within=20) == 0
        assert wire.stderr() == ""


def addresses(folder: Path) -> list[Path]:
    return [*(folder / "refdesk").glob("*.sock")]


def test_a_bridge_is_small_and_has_the_standard_library_alone(host: Start, clock_room: Path) -> None:
    wire = host(clock_room).begun()
    assert titles_found(wire, "clock")
    memory = psutil.Process(wire.process.pid).memory_full_info()
    assert max(memory.rss, memory.uss) < MEMORY_BYTES
    program = "import sys; before = {*sys.modules}; import server.bridge; print(*{*sys.modules} - before)"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    imported = {name.partition(".")[0] for name in run.stdout.split()}
    assert "server" in imported
    assert imported <= sys.stdlib_module_names | {"server"}
    assert not imported & {"asyncio", "argparse", "pathlib", "subprocess", "importlib"}


def test_each_host_sees_what_its_own_user_may_though_all_ask_at_once(
    host: Start, desks: Callable[[], list[psutil.Process]], world: World
) -> None:
    draw = random.Random(7)  # noqa: S311 no secret
    wires = {name: host(world.data, *flags) for name, (flags, _) in PEOPLE.items()}
    ids: dict[str, list[str]] = {}
    for name, wire in wires.items():
        wire.begin()
        search(wire, 1)
        hits = wire.read()["result"]["structuredContent"]["results"]
        assert {hit["cite_as"] for hit in hits} == PEOPLE[name][1]
        ids[name] = [hit["id"] for hit in hits]
    assert len(desks()) == 1
    readable = {name: set(ids[name]) for name in ids}
    for _ in range(3 if BY_DAY else 100):
        answers: list[tuple[str, int, str | None]] = []
        for number in range(30):
            name, id_ = (
                draw.choice([*wires]),
                draw.choice([None, *(id_ for some in ids.values() for id_ in some)]),
            )
            if id_ is None:
                search(wires[name], number)
            else:
                wires[name].send(number, "tools/call", {"name": "get_source", "arguments": {"id": id_}})
            answers.append((name, number, id_))
        expected = {(name, number): id_ for name, number, id_ in answers}
        for name, count in Counter(name for name, _, _ in answers).items():
            for _answer in range(count):
                answer = wires[name].read()
                id_ = expected.pop((name, answer["id"]))
                if id_ is None:
                    assert titles(answer) == PEOPLE[name][1]
                else:
                    assert answer["result"].get("isError", False) == (id_ not in readable[name])
        assert not expected
    leave_silently(*wires.values())


def test_no_answer_is_lost_or_mixed_up_when_the_desk_is_killed_at_any_moment(
    host: Start, desks: Callable[[], list[psutil.Process]], world: World
) -> None:
    draw = random.Random(11)  # noqa: S311 no secret
    wires = {name: host(world.data, *flags) for name, (flags, _) in PEOPLE.items()}
    for wire in wires.values():
        wire.begin()
    for trial in range(KILLS):
        ids = {name: {f"{trial}-{number}" for number in range(draw.randrange(1, 6))} for name in wires}
        for name, wire in wires.items():
            for id_ in ids[name]:
                wire.send(id_, "tools/call", {"name": "search", "arguments": {"query": f"pendulum {id_}"}})
        time.sleep(draw.choice([0, 0.05, 0.5, 2]) * draw.random())
        for desk in desks():
            with suppress(psutil.NoSuchProcess):
                desk.kill()
        for name, wire in wires.items():
            while ids[name]:
                answer = wire.read()
                ids[name].remove(answer["id"])
                assert titles(answer) == PEOPLE[name][1]
    leave_silently(*wires.values())


ODD_LINES: list[bytes] = [
    b"no message",
    b"",
    b" \t ",
    b"\xef\xbb\xbf",
    b'\xef\xbb\xbf{"jsonrpc": "2.0", "id": 2, "method": "ping"}\r',
    b"x" * (MAX_MESSAGE_BYTES + 1),
    b"y" * (3 * MAX_MESSAGE_BYTES),
    b'{"jsonrpc": "2.0", "id": 3, "method": "ping", "params": 3}',
    b'{"jsonrpc": "2.0", "id": null, "method": "ping"}',
    b'{"jsonrpc": "2.0", "id": "4", "method": "' + b"m" * 100 + b'"}',
    b'{"jsonrpc": "2.0", "id": "5", "method": "ping", "params": {"x": "\\ud800"}}',
    b"\xff\xfe\x00",
    b"[]",
    b'{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 99}}',
    b'{"jsonrpc": "2.0", "id": 6, "result": {}}',
    b'{"jsonrpc": "2.0", "id": 7, "method": "initialize"}',
    b'{"jsonrpc": "2.0", "id": 8, "method": "tools/list"}',
    b'{"jsonrpc": "2.0", "id": 9, "method": "' + b"p" * 40,
]


def test_odd_lines_are_answered_as_by_a_process_of_its_own(
    scripts: Scripts, folder: Path, clock_room: Path
) -> None:
    first = json.dumps(message("initialize", **HANDSHAKE)).encode()
    whole, alone = [
        subprocess.run(
            [scripts.server, "--data", clock_room, *flags],
            input=b"\n".join((first, *ODD_LINES)),  # the last one without an end
            env=scripts.environment | {"XDG_RUNTIME_DIR": str(folder)},
            capture_output=True,
            timeout=SECONDS,
            check=True,
        )
        for flags in ((), ("--alone",))
    ]
    assert sorted(whole.stdout.splitlines()) == sorted(alone.stdout.splitlines())
    assert len(whole.stdout.splitlines()) == 14
    assert whole.stderr == alone.stderr == b""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux can make a pipe small")
@pytest.mark.parametrize("flags", [(), ("--alone",)])
def test_a_host_that_never_reads_standard_error_gets_its_answers_and_later_the_number_of_lost_lines(
    scripts: Scripts, folder: Path, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    requests = [message("initialize", **HANDSHAKE), *[call("search", query="pendulum")] * 98]
    unread, log = os.pipe()
    fcntl.fcntl(log, fcntl.F_SETPIPE_SZ, 8192)
    process = subprocess.Popen(
        [scripts.server, "--data", tmp_path / "nowhere", *flags],  # which is a warning in each call
        env=scripts.environment | {"XDG_RUNTIME_DIR": str(folder)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
    )
    os.close(log)
    assert process.stdin
    assert process.stdout
    answered = []
    try:
        for id_, request in enumerate(requests, 1):
            process.stdin.write(json.dumps(request | {"id": id_}).encode() + b"\n")
            process.stdin.flush()
            assert select.select([process.stdout], [], [], SECONDS)[0]
            answered.append(json.loads(process.stdout.readline())["id"])
            if len(answered) == 90:  # the host reads at last
                assert b"There is no data" in os.read(unread, 1 << 16)
        process.stdin.close()
        assert process.wait(timeout=SECONDS) == 0
        assert re.search(LOST.format("[0-9]+"), os.read(unread, 1 << 16).decode())
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()
        os.close(unread)
    assert answered == [*range(1, 100)]


def test_four_hosts_that_start_at_once_share_one_desk(
    host: Start, desks: Callable[[], list[psutil.Process]], clock_room: Path
) -> None:
    wires = [host(clock_room, "--user", f"user{number}") for number in range(4)]
    for wire in wires:
        wire.begin()
    assert len(desks()) == 1
    leave_silently(*wires)
    assert len(desks()) == 1  # for the next host


def test_a_host_that_wants_it_has_a_process_of_its_own(
    host: Start, desks: Callable[[], list[psutil.Process]], folder: Path, clock_room: Path
) -> None:
    wire = host(clock_room, "--alone").begun()
    assert titles_found(wire, "clock")
    assert not desks()
    assert not [*folder.iterdir()]
    leave_silently(wire)


def is_served_alone(host: Start, desks: Callable[[], list[psutil.Process]], data: Path, **env: str) -> Wire:
    wire = host(data, env=env).begun()
    assert not desks()
    return wire


def leave_after_a_word(wire: Wire) -> None:
    assert wire.leave(within=20) == 0
    assert wire.stderr().startswith(ALONE)
    assert wire.stderr().count("\n") == 1


def test_what_stands_in_the_sockets_place_is_left_and_the_host_served_alone(
    host: Start, desks: Callable[[], list[psutil.Process]], folder: Path, clock_room: Path, tmp_path: Path
) -> None:
    before = host(clock_room).begun()
    (address,) = addresses(folder)
    leave_silently(before)
    kill(desks)
    address.unlink()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.touch()
    for put in (partial(address.symlink_to, elsewhere), address.touch, address.mkdir):
        put()
        leave_after_a_word(is_served_alone(host, desks, clock_room))
        address.rmdir() if address.is_dir() else address.unlink()


@pytest.mark.parametrize("trouble", ["open folder", "linked folder", "foreign folder", "long"])
def test_trouble_with_the_folder_is_said_once_and_the_host_is_served_alone(
    host: Start,
    desks: Callable[[], list[psutil.Process]],
    folder: Path,
    clock_room: Path,
    tmp_path: Path,
    trouble: str,
) -> None:
    folder_of_another, env = folder / "refdesk", {}
    if trouble == "linked folder":
        folder_of_another.symlink_to(tmp_path)
    elif trouble == "foreign folder":
        if os.geteuid():
            pytest.skip("only root can give a folder to somebody else")
        folder_of_another.mkdir(0o700)
        os.chown(folder_of_another, 12345, 12345)
    elif trouble == "open folder":
        folder_of_another.mkdir()
        folder_of_another.chmod(0o750)
    else:
        (tmp_path / ("x" * 100)).mkdir()
        env["XDG_RUNTIME_DIR"] = str(tmp_path / ("x" * 100))
    wire = is_served_alone(host, desks, clock_room, **env)
    assert trouble == "long" or not [*tmp_path.iterdir()]
    if trouble == "long":  # and it answers
        assert titles_found(wire, "clock")
    leave_after_a_word(wire)


def test_a_socket_that_a_killed_desk_left_is_replaced(
    host: Start, desks: Callable[[], list[psutil.Process]], folder: Path, clock_room: Path
) -> None:
    for _ in range(2):
        wire = host(clock_room).begun()
        assert len(desks()) == 1
        assert len(addresses(folder)) == 1
        leave_silently(wire)
        kill(desks)


def connected(address: Path) -> socket.socket:
    stranger = socket.socket(socket.AF_UNIX)
    stranger.settimeout(SECONDS)
    stranger.connect(str(address))
    return stranger


def is_refused(stranger: socket.socket) -> bool:
    with stranger:
        try:
            return stranger.recv(1) == b""
        except ConnectionResetError:
            return True


def test_connections_that_say_nothing_are_few_and_dont_stay(
    host: Start, desks: Callable[[], list[psutil.Process]], folder: Path, clock_room: Path
) -> None:
    wire = host(clock_room).begun()
    (address,) = addresses(folder)
    silent = [connected(address) for _ in range(2 * MAX_SESSIONS)]
    assert titles_found(wire, "clock")
    (desk,) = desks()
    assert len(desk.net_connections("unix")) < 1.5 * MAX_SESSIONS
    assert all(map(is_refused, silent))
    later = host(clock_room).begun()
    leave_silently(later, wire)
    assert len(desks()) == 1


def test_what_is_no_call_begins_no_session(host: Start, folder: Path, clock_room: Path) -> None:
    wire = host(clock_room).begun()
    (address,) = addresses(folder)
    odd_call = b'{"arguments": 1, "environment": 2, "folder": 3}\n'
    for words in (b"hello\n", b"{}\n", b"[1]\n", odd_call, b"x" * 5_000_000, b"\0\n"):
        stranger = connected(address)
        with suppress(BrokenPipeError, ConnectionResetError):
            stranger.sendall(words)
        assert is_refused(stranger)
    assert titles_found(wire, "clock")
    leave_silently(wire)


CONNECTING = """
import json, socket, sys
desk = socket.socket(socket.AF_UNIX)
desk.settimeout(60)
desk.connect(sys.argv[1])
try:
    desk.sendall(sys.stdin.buffer.read())
    print(desk.recv(1))
except ConnectionError:
    print(b"")
"""
ANYBODY = Path("/usr/bin/python3")  # which others than its owner can run


@pytest.mark.skipif(os.geteuid() != 0 or not ANYBODY.exists(), reason="only root can be somebody else")
def test_another_user_begins_no_session_even_if_the_folder_is_opened(
    scripts: Scripts, host: Start, folder: Path, clock_room: Path
) -> None:
    wire = host(clock_room).begun()
    (address,) = addresses(folder)
    for path, mode in ((folder, 0o711), (address.parent, 0o711), (address, 0o666)):
        path.chmod(mode)
    environment = scripts.environment | {"XDG_RUNTIME_DIR": str(folder)}
    call = {"arguments": ["--data", str(clock_room)], "environment": environment, "folder": "/"}
    ends = [
        subprocess.run(
            [ANYBODY, "-c", CONNECTING, str(address)],
            input=f"{json.dumps(call)}\n",
            cwd="/",
            user=user,
            capture_output=True,
            timeout=SECONDS,
            text=True,
            check=True,
        ).stdout
        for user in (0, 65534)
    ]
    assert ends == ["b'='\n", "b''\n"]
    leave_silently(wire)


def test_another_installation_or_variable_or_folder_makes_another_desk(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    packages = tmp_path / "site-packages"
    packages.mkdir()
    monkeypatch.setattr(sys, "path", [*sys.path, str(packages)])
    for name in [name for name in os.environ if name.startswith(bridge.ASKER_VARIABLES)]:
        monkeypatch.delenv(name)
    keys = [bridge._key(["--data", "/a"])]  # noqa: SLF001 nothing else shows what is in it
    monkeypatch.setenv("REFDESK_PRINCIPAL_USER", "ann")
    monkeypatch.setenv("TERM", "other")
    assert bridge._key(["--data", "/a", "--user", "ann"]) == keys[0]  # noqa: SLF001 the same
    os.utime(packages, ns=(1, 1))
    keys.append(bridge._key(["--data", "/a"]))  # noqa: SLF001 the same
    keys.append(bridge._key(["--data", "/b"]))  # noqa: SLF001 the same
    for name in ("REFDESK_SEARCH_LIMIT", "PYTHONPATH", "HOME"):
        monkeypatch.setenv(name, "5")
        keys.append(bridge._key(["--data", "/b"]))  # noqa: SLF001 the same
    assert len(set(keys)) == len(keys)
    for name in ("https_proxy", "AWS_PROFILE", "SSL_CERT_FILE", "HOMEBREW_PREFIX"):  # the desk looks at these
        monkeypatch.setenv(name, "5")
    assert bridge._key(["--data", "/b"]) == keys[-1]  # noqa: SLF001 the same


def settings_file(path: Path, text: str) -> dict[str, str]:
    path.write_text(text)
    return {"REFDESK_CONFIG": str(path)}


def test_changed_settings_count_for_the_next_host(
    host: Start, desks: Callable[[], list[psutil.Process]], clock_room: Path, tmp_path: Path
) -> None:
    file = tmp_path / "config.toml"
    first = host(clock_room, env=settings_file(file, '[server]\ntitle = "First"\n'))
    assert first.begin()["serverInfo"]["title"] == "First"
    second = host(clock_room, env=settings_file(file, '[server]\ntitle = "Second"\n'))
    assert second.begin()["serverInfo"]["title"] == "Second"
    third = host(clock_room, env={"REFDESK_CONFIG": str(file)})
    assert third.begin()["serverInfo"]["title"] == "Second"
    assert first.result("initialize", HANDSHAKE)["serverInfo"]["title"] == "First"
    assert len(desks()) == 2
    leave_silently(first)
    until(lambda: len(desks()) == 1)  # nobody can connect to the first any more
    leave_silently(second, third)


@pytest.mark.parametrize("named", [True, False])
def test_a_variable_that_the_settings_name_makes_another_desk(
    host: Start, desks: Callable[[], list[psutil.Process]], clock_room: Path, *, named: bool
) -> None:
    env = {"REFDESK_CHAT_API_KEY_ENV": "MY_KEY"} | ({"REFDESK_CHAT_MODEL": "m"} if named else {})
    wires = [host(clock_room, env=env | {"MY_KEY": value}) for value in ("a", "b")]
    for wire in wires:
        wire.begin()
        assert titles_found(wire, "clock")
    assert len(desks()) == 1 + named
    leave_silently(*wires)


@pytest.mark.parametrize(
    ("settings", "counted"),
    [
        ({}, set()),
        ({"chat": {"model": "m", "api_key_env": "MY_KEY"}}, {"MY_KEY", "SSL_CERT_FILE", "https_proxy"}),
        ({"reranker": {"provider": "tei", "base_url": "u"}}, {"SSL_CERT_FILE", "https_proxy"}),
        ({"storage": {"uri": "s3://desk"}}, {"AWS_PROFILE", "SSL_CERT_FILE", "https_proxy"}),
        ({"server": {"traces": True}}, {"OTEL_A", "SSL_CERT_FILE", "https_proxy"}),
        ({"retrievers": {"own": {"call": "own:Own"}}}, None),
    ],
)
def test_a_desk_compares_the_variables_that_its_settings_go_by(
    settings: dict[str, object], counted: set[str] | None
) -> None:
    names = {"MY_KEY", "AWS_PROFILE", "SSL_CERT_FILE", "https_proxy", "OTEL_A", "TERM"}
    compared = variables_that_count(Settings.model_validate(settings), names)
    assert compared == (names if counted is None else counted)


def test_a_desk_compares_the_variables_of_lancedb_s_service_and_of_a_tenants_bucket(tmp_path: Path) -> None:
    settings, names = Settings(data=tmp_path), {"AWS_PROFILE", "LANCEDB_API_KEY", "TERM"}
    assert variables_that_count(settings, names) == {"LANCEDB_API_KEY"}
    (tmp_path / "tenants").mkdir()
    (tmp_path / "tenants" / "acorn").write_text("/srv/acorn")
    assert variables_that_count(settings, names) == {"LANCEDB_API_KEY"}
    (tmp_path / "tenants" / "birch").write_text("s3://bucket/birch")
    assert variables_that_count(settings, names) == names - {"TERM"}


def test_wrong_settings_are_told_as_by_a_process_of_its_own(
    host: Start, world: World, tmp_path: Path
) -> None:
    right = host(world.data, "--tenant", "acorn").begun()
    refusals = []
    for flags in (("--tenant", "nobody"), ("--tenant", "nobody", "--alone")):
        wire = host(world.data, *flags).begun()
        words = wire.tool_error("search", {"query": "pendulum"})
        assert "nobody" in words
        assert wire.leave(within=20) == 2
        refusals.append((words, wire.stderr()))
    assert refusals[0] == refusals[1]
    assert titles_found(right) == {"open"}
    leave_silently(right)
    assert host(tmp_path / "data", env={"REFDESK_SEARCH_LIMIT": "many"}).leave(within=20) == 2


IMPATIENT = """
import sys

if any("desk of /" in each for each in sys.orig_argv):
    import server.shared_desk

    server.shared_desk.IDLE_SECONDS = 0.6
"""


def test_an_idle_desk_ends_and_comes_back_for_the_same_user(
    host: Start, desks: Callable[[], list[psutil.Process]], world: World, tmp_path: Path
) -> None:
    """Whatever the settings say of the user by then: the session's is fixed at its beginning."""
    (tmp_path / "sitecustomize.py").write_text(IMPATIENT)
    file, impatient = tmp_path / "config.toml", {"PYTHONPATH": str(tmp_path)}
    bob = '[principal]\ntenant = "acorn"\nuser = "bob"\n'
    wire = host(world.data, env=impatient | settings_file(file, bob)).begun()
    assert titles_found(wire) == {"open"}
    until(lambda: not desks())
    settings_file(file, '[principal]\ntenant = "acorn"\nuser = "ann"\ngroups = ["hr"]\n')
    assert titles_found(wire) == {"open"}
    later = host(world.data, env=impatient | {"REFDESK_CONFIG": str(file)}).begun()
    assert titles_found(later) == {"open", "secret"}
    until(lambda: not desks())
    leave_silently(wire, later)


def test_what_a_session_logs_is_said_to_its_host_alone(host: Start, world: World) -> None:
    env = {"REFDESK_SERVER_LOG_LEVEL": "info"}
    wires = {name: host(world.data, *flags, env=env) for name, (flags, _) in PEOPLE.items()}
    for name, wire in wires.items():
        wire.begin()
        assert titles_found(wire) == PEOPLE[name][1]
    for name, wire in wires.items():
        assert wire.leave(within=20) == 0
        lines = [json.loads(line) for line in wire.stderr().splitlines()]
        calls = [line for line in lines if line["message"] == "call"]
        assert {line["call"] for line in calls} == {"initialize", "search"}
        flags = "=".join(PEOPLE[name][0]).split("=")
        assert {(line["tenant"], line["user"]) for line in calls} == {(flags[1], flags[3])}


FAILING = """
import os, sys

if os.path.exists(os.environ["FAILS"]) and any("desk of /" in each for each in sys.orig_argv):
    os._exit(1)
"""


@pytest.mark.parametrize("begun", [True, False])
def test_a_desk_that_always_fails_is_replaced_by_one_of_the_hosts_own(
    host: Start, desks: Callable[[], list[psutil.Process]], world: World, tmp_path: Path, *, begun: bool
) -> None:
    (tmp_path / "sitecustomize.py").write_text(FAILING)
    fails = tmp_path / "fails"
    flags, visible = PEOPLE["ann"]
    if not begun:
        fails.touch()
    wire = host(world.data, *flags, env={"PYTHONPATH": str(tmp_path), "FAILS": str(fails)}).begun()
    assert titles_found(wire) == visible
    if begun:
        fails.touch()
        kill(desks)
        assert titles_found(wire) == visible
    assert titles_found(wire) == visible
    assert not desks()
    leave_after_a_word(wire)


def test_paths_go_from_the_folder_in_which_the_host_started_it(
    scripts: Scripts, folder: Path, clock_room: Path, world: World
) -> None:
    """So the same arguments can mean two desks, also by a path in the settings file."""
    (folder / "config.toml").write_text('data = "desk"\n')
    call = {"name": "search", "arguments": {"query": "clock pendulum"}}
    call_line = json.dumps({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call})
    greeting = json.dumps(message("initialize", **HANDSHAKE))
    outcomes = set()
    for flags in (("--data", "desk"), ("--config", str(folder / "config.toml"))):
        for data, tenant in ((clock_room, "default"), (world.data, "acorn")):
            (folder / tenant).mkdir(exist_ok=True)
            with suppress(FileExistsError):
                (folder / tenant / "desk").symlink_to(data)
            run = subprocess.run(
                [scripts.sharing_server, *flags, "--tenant", tenant],
                input=f"{greeting}\n{call_line}\n",
                cwd=folder / tenant,
                env=scripts.environment | {"XDG_RUNTIME_DIR": str(folder)},
                capture_output=True,
                timeout=SECONDS,
                check=True,
                text=True,
            )
            assert run.stderr == ""
            outcomes.add((tenant, titles(json.loads(run.stdout.splitlines()[1])) == {"open"}))
    assert outcomes == {("default", False), ("acorn", True)}


def test_a_host_that_is_killed_disturbs_no_other(host: Start, clock_room: Path) -> None:
    killed, surviving = host(clock_room), host(clock_room)
    for wire in (killed, surviving):
        wire.begin()
    for number in range(20):
        search(killed, number, "clock")
    killed.process.kill()
    assert titles_found(surviving, "clock")
    leave_silently(surviving)
