import threading

import pytest

from tests.ops.provisioner.invocations import Inbox


@pytest.fixture
def inbox():
    with Inbox() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()
