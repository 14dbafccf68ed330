"""A live camera: Motion JPEG over HTTP, as network cameras send it."""

import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import cv2


@contextmanager
def network_camera(images, rate_hz=20.0, forever=False, silent=False):
    """Serves images at a rate to every client; yields the URL.

    At the end it repeats the last image (`forever`), keeps the connection and sends nothing
    (`silent`), or closes the connection.
    """
    encoded = [cv2.imencode(".jpg", image)[1].tobytes() for image in images]
    stopping = threading.Event()

    class Camera(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Type", "multipart/x-mixed-replace; boundary=image")
            self.end_headers()
            index = 0
            while not stopping.is_set() and (forever or index < len(encoded)):
                data = encoded[min(index, len(encoded) - 1)]
                head = (
                    f"--image\r\nContent-Type: image/jpeg\r\nContent-Length: {len(data)}\r\n\r\n"
                )
                try:
                    self.wfile.write(head.encode() + data + b"\r\n")
                except OSError:  # the client left
                    return
                index += 1
                time.sleep(1 / rate_hz)
            if silent:
                stopping.wait()

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Camera)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/camera.mjpg"
    finally:
        stopping.set()
        server.shutdown()
        server.server_close()
