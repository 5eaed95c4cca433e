"""A real Envoy in front of a small upstream, limited by a service."""

import http.server
import os
import shutil
import subprocess
import threading
from pathlib import Path

import yaml

from tests.service.running import wait_for_port

ROOT = Path(__file__).parents[2]
INSTALLED = ROOT / ".tools" / "envoy" / "envoy" / "_bin" / "envoy"


def find_envoy():
    """Return the binary that ZAEL_ENVOY names, that make has installed, or that is on the path."""
    named = os.environ.get("ZAEL_ENVOY")
    if named:
        return named
    if INSTALLED.exists():
        return str(INSTALLED)
    return shutil.which("envoy")


class Upstream:
    """Answers 200 to everything, and counts."""

    def __init__(self):
        self.count = 0
        lock = threading.Lock()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                with lock:
                    outer.count += 1
                self.send_response(200)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"ok")

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        self._thread = threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def stop(self):
        self.server.shutdown()
        self.server.server_close()
        self._thread.join(10)


class Envoy:
    """Runs the configuration of the documentation, with other ports."""

    def __init__(self, binary, folder, configuration):
        path = folder / "envoy-proxy.yaml"
        path.write_text(yaml.safe_dump(configuration), encoding="utf-8")
        self.log = (folder / "envoy.log").open("wb")
        self.process = subprocess.Popen(
            [
                binary,
                "--config-path",
                str(path),
                "--concurrency",
                "1",
                "--disable-hot-restart",
                "--log-level",
                "warn",
            ],
            stdout=self.log,
            stderr=subprocess.STDOUT,
        )
        listener = configuration["static_resources"]["listeners"][0]
        self.port = listener["address"]["socket_address"]["port_value"]
        wait_for_port(self.port)

    def stop(self):
        self.process.terminate()
        self.process.wait(30)
        self.log.close()


def configuration_of_docs():
    """Return the Envoy configuration that the documentation shows."""
    page = (ROOT / "docs" / "operations" / "service.md").read_text(encoding="utf-8")
    text = page.split("```yaml\n# envoy-proxy.yaml\n")[1].split("\n```")[0]
    return yaml.safe_load(text)


def rate_limit_filter(configuration):
    listener = configuration["static_resources"]["listeners"][0]
    filters = listener["filter_chains"][0]["filters"][0]["typed_config"]["http_filters"]
    return filters[0]["typed_config"]


def placed(configuration, *, listener, upstream, limiter):
    """Set the ports of a configuration."""
    listener_address = configuration["static_resources"]["listeners"][0]["address"]
    listener_address["socket_address"]["port_value"] = listener
    ports = {"upstream": upstream, "limiter": limiter}
    for cluster in configuration["static_resources"]["clusters"]:
        endpoint = cluster["load_assignment"]["endpoints"][0]["lb_endpoints"][0]["endpoint"]
        endpoint["address"]["socket_address"]["port_value"] = ports[cluster["name"]]
    return configuration
