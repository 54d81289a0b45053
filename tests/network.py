"""The network, as tests see it."""

import io
import ssl
import urllib.error
import urllib.request
from email.message import Message


class Server:
    """Stands for the network: what each URL answers, and what was asked for."""

    def __init__(self, monkeypatch, answers, lengths=None):
        self.answers, self.lengths, self.asked = answers, lengths or {}, []
        monkeypatch.setattr(urllib.request, "urlopen", self.open)

    def open(self, url, *, timeout, context):
        assert timeout > 0
        assert context.verify_mode == ssl.CERT_REQUIRED
        assert context.check_hostname
        self.asked.append(url)
        if url not in self.answers:
            raise urllib.error.URLError("no network")
        response = io.BytesIO(self.answers[url])
        response.headers = Message()
        response.headers["Content-Length"] = str(self.lengths.get(url, len(self.answers[url])))
        return response
