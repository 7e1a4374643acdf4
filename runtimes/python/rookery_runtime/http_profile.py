"""The contract that the user's HTTP server follows: port, paths, probe and header of the session."""
import json
import os

#: The control plane sends the profile in this variable. The user's server does not see it.
_VARIABLE = 'ROOKERY_HTTP_PROFILE'
#: The functions framework reads the form of its requests from this variable.
_SIGNATURE_VARIABLE = 'FUNCTION_SIGNATURE_TYPE'


class HttpProfile(object):
    """Members without a sent value are those of the profile `http`."""

    def __init__(self, sent=None, takes_cloud_events=False):
        sent = sent or {}
        #: Name for messages; '' for `http`, whose program has a name of its own.
        self.name = sent.get('name', '')
        #: None: the port of `http`.
        self.port = sent.get('port')
        self.call_path = sent.get('callPath', '/invoke')
        #: Path that shows readiness; None: a server that listens is ready.
        self.probe = sent.get('probe', '/healthz')
        #: True if only 200 means ready.
        self.is_probe_strict = sent.get('isProbeStrict', False)
        #: Path of the initializer; None: there is none.
        self.init_path = sent.get('initPath', '/init')
        self.session_header = sent.get('sessionHeader')
        #: True if calls are sent as CloudEvents.
        self.takes_cloud_events = takes_cloud_events


def take_profile():
    """Returns the profile of this process's environment, and removes it from there."""
    sent = os.environ.pop(_VARIABLE, None)
    if sent is None:
        return HttpProfile()
    sent = json.loads(sent)
    is_framework = sent['name'] == 'functions-framework'
    return HttpProfile(sent, is_framework and os.environ.get(_SIGNATURE_VARIABLE) == 'cloudevent')


def cloud_event(body, request_id):
    """
    Returns the headers that make a call's body a CloudEvent.

    A JSON object with `specversion` is an event in structured form. Another body is the data of an event.
    """
    try:
        event = json.loads(bytes(body).decode('utf-8'))
    except (ValueError, RecursionError):
        event = None
    if isinstance(event, dict) and 'specversion' in event:
        return {'Content-Type': 'application/cloudevents+json'}
    return {'ce-specversion': '1.0', 'ce-id': request_id, 'ce-source': '/rookery', 'ce-type': 'rookery.call'}
