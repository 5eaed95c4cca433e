"""What surrounds an invocation of the function: Lambda's context, and where its answers go."""

import http.server
import json


class Inbox(http.server.ThreadingHTTPServer):
    """Receives the answers of custom resources, as S3 does for CloudFormation."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Putting)
        self.answers = []
        self.lengths = []  # bytes of each answer
        self.refusals = 0  # how many requests are refused first

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}/answer?Signature=a%2Bb"


class Putting(http.server.BaseHTTPRequestHandler):
    def do_PUT(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.lengths.append(len(body))
        if self.server.refusals:
            self.server.refusals -= 1
            self.send_error(503)
            return
        self.server.answers.append((self.path, self.headers["Content-Type"], json.loads(body)))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *args):
        pass


class Context:
    """Lambda's context of an invocation, with the remaining time."""

    def __init__(self, seconds):
        self.seconds = seconds

    def get_remaining_time_in_millis(self):
        return self.seconds * 1000
