#!/usr/bin/python3
"""Real engines out of the view, on sid: llama-server under the unit that we ship for it, and transformers with the same
logits as from the source. A restart reads no byte of the source, which is moved away to show it."""
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from harness import box, process, tap  # noqa: E402
from harness.system import System, unit_of  # noqa: E402

BOOT = pathlib.Path(__file__).resolve().parent
EXAMPLES = "/usr/share/doc/iloader/examples"
ENGINE = "llama-server@sample.service"
ASK = """
import json, sys, urllib.request
body = json.dumps({"prompt": "hello", "n_predict": 16, "temperature": 0, "seed": 1}).encode()
request = urllib.request.Request("http://127.0.0.1:8081/completion", body, {"Content-Type": "application/json"})
print(json.dumps(json.load(urllib.request.urlopen(request, timeout=20))["content"]))
"""


def setup():
    box.need("sid-llama")
    box.need("sid-torch")


def answer(s):
    result = s.run("python3", "-c", ASK)
    return json.loads(result.out) if result.code == 0 else None


def engine_pid(s):
    leases = s.cache("sample")["leases"]
    assert [lease["command"] for lease in leases] == ["llama-server"], leases
    return leases[0]["pid"]


@tap.test(timeout=300)
def llama_server_answers_from_the_view():
    with System("sid-llama", binds={str(BOOT): "/run/boot"},
                files={"/etc/iloader/engines/sample.env": "MODEL_FILE=model.gguf\nLLAMA_ARGS=--port 8081\n"}) as s:
        s.run("cp", f"{EXAMPLES}/llama-server@.service", "/etc/systemd/system/").ok()
        s.systemctl("daemon-reload").ok()
        # Large enough for a memory file of its own.
        s.run("mkdir", "-p", "/srv/sample").ok()
        s.run("python3", "/run/boot/make-gguf.py", "/srv/sample/model.gguf", "--hidden", "256").ok()
        s.configure("sample", "/srv/sample")
        # The cache comes with it.
        s.systemctl("start", ENGINE, timeout=60).ok()
        first = process.wait_until(lambda: answer(s), "llama-server answers", 60, 0.2)
        cache, pid = s.cache("sample"), engine_pid(s)
        assert f"{cache['view']}/model.gguf" in s.run("cat", f"/proc/{pid}/cmdline").out.split("\0")
        assert "memfd:" in s.read(f"/proc/{pid}/maps"), "the model is mapped out of memory files"

        s.run("mv", "/srv/sample", "/srv/moved-away").ok()
        s.systemctl("restart", ENGINE, timeout=60).ok()
        again = process.wait_until(lambda: answer(s), "llama-server answers again", 60, 0.2)
        assert again == first and engine_pid(s) != pid, (first, again)
        assert s.cache("sample")["pid"] == cache["pid"]

        # A crash of the engine is no different: Restart= brings it back from memory.
        crashed = engine_pid(s)
        s.run("kill", "-KILL", str(crashed)).ok()
        process.wait_until(lambda: s.cache("sample")["leases"] and engine_pid(s) != crashed, "it is started again", 30, 0.1)
        assert process.wait_until(lambda: answer(s), "and answers", 60, 0.2) == first

        # The engine's unit is bound to the cache's.
        s.systemctl("stop", unit_of("sample"), timeout=60).ok()
        assert s.unit_state(ENGINE)["ActiveState"] in ("inactive", "failed")
        assert s.cache("sample") is None and not s.is_alive(cache["pid"])


LOGITS = """
import sys, torch, transformers
model = transformers.AutoModelForCausalLM.from_pretrained(sys.argv[1])
tokens = transformers.AutoTokenizer.from_pretrained(sys.argv[1])("the same logits", return_tensors="pt")
with torch.no_grad():
    torch.save(model(**tokens).logits, sys.argv[2])
"""
COMPARE = "import sys, torch; a, b = map(torch.load, sys.argv[1:]); print(torch.equal(a, b), tuple(a.shape), bool(a.abs().sum() > 0))"


@tap.test(timeout=300)
def transformers_computes_the_same_logits():
    with System("sid-torch") as s:
        s.run("python3", "/run/tools/make-sample-checkpoint.py", "/srv/sample", "--shards", "3").ok()
        s.configure("sample", "/srv/sample")
        s.write("/tmp/logits.py", LOGITS)
        s.run("python3", "/tmp/logits.py", "/srv/sample", "/tmp/from-source.pt", timeout=120).ok()
        cache = s.start_unit("sample")
        assert cache["files"] >= 6, cache
        s.run("mv", "/srv/sample", "/srv/moved-away").ok()
        # As a service of the cache's user, as engines are.
        s.run("install", "-d", "-o", "iloader", "/srv/out").ok()
        s.unit("iloader", "run", "--system", "sample", "--", "python3", "/tmp/logits.py", "{model}", "/srv/out/from-view.pt",
               user="iloader", timeout=120).ok()
        result = s.run("python3", "-c", COMPARE, "/tmp/from-source.pt", "/srv/out/from-view.pt", timeout=60).ok()
        same, _, rest = result.out.partition(" ")
        assert same == "True" and rest.strip().endswith("True") and not rest.startswith("(0"), result


tap.main(setup)
