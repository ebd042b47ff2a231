"""The comparison with other frameworks: scripts that only pretend, our own, and, where they are installed, all."""

import json
import subprocess
import sys

import psutil
import pytest

from fedentropy_core.bench.peers import compare, tree
from fedentropy_core.bench.peers.compare import PEERS, Peer, measured, started, table
from fedentropy_core.bench.rounds import Setting
from fedentropy_core.cli import main
from fedentropy_core.files import project_root

SMALL = Setting(devices=2, images=10, epochs=1, batch_size=5, test_images=20)
PRETENDS = """
import json, sys
job = json.load(open(sys.argv[1]))
print("chatter", flush=True)
print(json.dumps({"ready": True}), flush=True)
for number in range(job["rounds"]):
    sys.stdin.readline()
    print(json.dumps({"seconds": float(number)}), flush=True)
"""


def script(folder, text):
    path = folder / "peer_of_a_test.py"
    path.write_text(text)
    return Peer("pretender", str(path), "everything", engine="none")


def test_rounds_are_played_in_turn_the_first_and_the_last_untimed(tmp_path):
    report = measured(2, [script(tmp_path, PRETENDS)], SMALL, threads=1)
    (peer,) = report["peers"]
    assert peer["seconds"] == [1.0, 2.0]
    assert len(peer["cpu_seconds"]) == 2
    assert peer["peak_memory_mb"] > 1
    assert "torch==2.13.0" in report["requirements"]


def test_a_script_that_fails_is_no_result(tmp_path):
    with pytest.raises(ValueError, match=r"(?s)pretender ended without a round.*no such luck"):
        measured(1, [script(tmp_path, "raise SystemExit('no such luck')")], SMALL, threads=1)


def test_an_error_ends_the_processes(tmp_path):
    with pytest.raises(KeyboardInterrupt), started(script(tmp_path, PRETENDS), SMALL, 1, 1, tmp_path) as running:
        raise KeyboardInterrupt
    assert running.process.poll() is not None


def test_children_count(tmp_path):
    child = "import time; held = bytearray(50_000_000); print('held', flush=True); time.sleep(60)"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    with subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE) as process:
        root = psutil.Process(process.pid)
        process.stdout.readline()
        with tree.peak_memory(root) as peak:
            pass
        assert len(tree.processes(root)) == 2
        assert peak[0] > 50
        assert tree.cpu_seconds(root) > 0
        tree.end(root)
    assert tree.processes(root) == []


def test_our_own_script_plays():
    report = measured(1, [PEERS[1]], SMALL, threads=1)
    assert report["peers"][0]["seconds"][0] > 0


def test_table(tmp_path, capsys):
    peers = [
        {"title": title, "leaves_out": "much", "seconds": [seconds], "cpu_seconds": [1.0], "peak_memory_mb": 1234.0}
        for title, seconds in (("ours", 2.0), ("theirs", 5.0))
    ]
    machine = {"processor": "Abacus", "cores": 2, "load_before": 0.5}
    report = {"machine": machine, "threads": 2, "setting": vars(SMALL), "peers": peers}
    *_, ours, theirs = table(report).splitlines()
    assert ours.split() == ["ours", "2.00", "2.00–2.00", "1.0×", "1.00", "1,234", "much"]
    assert "2.5×" in theirs
    (tmp_path / "peers.json").write_text(json.dumps(report))
    main(["bench", "--peers", "--show", "--write", str(tmp_path / "peers.json")])
    assert table(report) in capsys.readouterr().out


def test_without_their_environment_it_says_what_makes_it(tmp_path, monkeypatch):
    monkeypatch.setattr(compare, "project_root", lambda: tmp_path)
    with pytest.raises(ValueError, match="make bench PEERS=1"):
        PEERS[2].command(tmp_path / "job.json", 1)


def test_the_environment_has_the_versions_of_the_project():
    theirs = set((compare.FOLDER / "requirements.txt").read_text().splitlines())
    assert theirs & set((project_root() / "requirements.txt").read_text().splitlines()) >= {"torch==2.13.0"}
    flower = next(line for line in theirs if line.startswith("flwr"))
    assert flower in (project_root() / "pyproject.toml").read_text()


@pytest.mark.slow
@pytest.mark.skipif(not (project_root() / ".peers/bin/python").exists(), reason="`make bench PEERS=1` makes it")
@pytest.mark.parametrize("peer", PEERS[2:], ids=lambda peer: peer.title)
def test_the_others_play(peer):
    report = measured(1, [peer], SMALL, threads=2)
    assert report["peers"][0]["seconds"][0] > 0
