#!/usr/bin/python3
"""Real engines out of the view: llama-server under its own unit, and transformers with the same logits as from the source.
A restart reads no byte of the source, which is moved away to show it."""
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from harness import box, process, tap  # noqa: E402
from harness.box import Box  # noqa: E402
from harness.product import STAGE  # noqa: E402

BOOT = pathlib.Path(__file__).resolve().parent
TOOLS = BOOT.parent.parent / "tools"
ENGINE = """
[Unit]
BindsTo=iloader@sample.service
After=iloader@sample.service

[Service]
User=iloader
ExecStart=/usr/bin/iloader run --system sample -- llama-server -m {model}/model.gguf --host 127.0.0.1 --port 8081
"""
ASK = """
import json, sys, urllib.request
body = json.dumps({"prompt": "hello", "n_predict": 16, "temperature": 0, "seed": 1}).encode()
request = urllib.request.Request("http://127.0.0.1:8081/completion", body, {"Content-Type": "application/json"})
print(json.dumps(json.load(urllib.request.urlopen(request, timeout=20))["content"]))
"""


def setup():
    box.need("sid-llama")
    box.need("sid-torch")


def answer(b):
    result = b.run("python3", "-c", ASK)
    return json.loads(result.out) if result.code == 0 else None


@tap.test(timeout=300)
def llama_server_answers_from_the_view():
    with Box("sid-llama", layers=[STAGE], enable=["iloaderd.socket"], binds={str(BOOT): "/run/boot"},
             files={"/etc/iloader/caches/sample.conf": "[Cache]\nSource=/srv/sample\n",
                    "/etc/systemd/system/engine.service": ENGINE}) as b:
        b.run("mkdir", "-p", "/srv/sample").ok()
        # Large enough for a memory file of its own.
        b.run("python3", "/run/boot/make-gguf.py", "/srv/sample/model.gguf", "--hidden", "256").ok()
        b.systemctl("start", "engine.service", timeout=60).ok()
        first = process.wait_until(lambda: answer(b), "llama-server answers", 60, 0.2)
        cache = json.loads(b.run("iloaderctl", "status", "sample", "--json").ok().out)
        assert [lease["command"] for lease in cache["leases"]] == ["llama-server"], cache
        pid = cache["leases"][0]["pid"]
        assert "memfd:" in b.read(f"/proc/{pid}/maps"), "the model is mapped out of memory files"

        b.run("mv", "/srv/sample", "/srv/moved-away").ok()
        b.systemctl("restart", "engine.service", timeout=60).ok()
        again = process.wait_until(lambda: answer(b), "llama-server answers again", 60, 0.2)
        assert again == first, (first, again)

        # The engine's unit is bound to the cache's.
        b.systemctl("stop", "iloader@sample.service", timeout=60).ok()
        assert b.show("engine.service", "ActiveState")["ActiveState"] in ("inactive", "failed")


@tap.test(timeout=300)
def transformers_computes_the_same_logits():
    program = """
import sys, torch, transformers
model = transformers.AutoModelForCausalLM.from_pretrained(sys.argv[1])
tokens = transformers.AutoTokenizer.from_pretrained(sys.argv[1])("the same logits", return_tensors="pt")
with torch.no_grad():
    torch.save(model(**tokens).logits, sys.argv[2])
"""
    compare = "import sys, torch; a, b = map(torch.load, sys.argv[1:]); print(torch.equal(a, b), tuple(a.shape))"
    with Box("sid-torch", layers=[STAGE], enable=["iloaderd.socket"], binds={str(TOOLS): "/run/tools"},
             files={"/etc/iloader/caches/sample.conf": "[Cache]\nSource=/srv/sample\n"}) as b:
        b.run("python3", "/run/tools/make-sample-checkpoint.py", "/srv/sample", "--shards", "3").ok()
        b.write("/tmp/logits.py", program)
        b.run("python3", "/tmp/logits.py", "/srv/sample", "/tmp/from-source.pt", timeout=120).ok()
        b.systemctl("start", "iloader@sample.service", timeout=60).ok()
        b.run("mv", "/srv/sample", "/srv/moved-away").ok()
        b.run("iloader", "run", "--system", "sample", "--", "python3", "/tmp/logits.py", "{model}", "/tmp/from-view.pt",
              user="iloader", timeout=120).ok()
        result = b.run("python3", "-c", compare, "/tmp/from-source.pt", "/tmp/from-view.pt", timeout=60).ok()
        assert result.out.startswith("True"), result


tap.main(setup)
