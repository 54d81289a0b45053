"""A replacement for the network in tests."""

import io
import ssl
import urllib.error
import urllib.request
from http.client import IncompleteRead


class Server:
    """Replaces the network by given answers to URLs, and records the requested URLs.

    An answer that is cut off raises the same exception as in http.client.
    """

    def __init__(self, monkeypatch, answers, cut=()):
        self.answers, self.cut, self.asked = answers, cut, []
        monkeypatch.setattr(urllib.request, "urlopen", self.open)

    def open(self, url, *, timeout, context):
        assert timeout > 0
        assert context.verify_mode == ssl.CERT_REQUIRED
        assert context.check_hostname
        self.asked.append(url)
        if url not in self.answers:
            raise urllib.error.URLError("no network")
        response = io.BytesIO(self.answers[url])
        if url in self.cut:
            response.read = lambda: self.fail(url)
        return response

    def fail(self, url):
        raise IncompleteRead(self.answers[url][:1000], 1)
