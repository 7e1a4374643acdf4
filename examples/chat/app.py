"""A chat agent that keeps the conversation in memory. Without MODEL_URL a stand-in replaces the model."""

import json
import os
import urllib.request


def handle(event, context):
    messages = context.state.setdefault('messages', [])
    messages.append({'role': 'user', 'content': event['say']})
    answer = ask(messages) if os.environ.get('MODEL_URL') else stand_in(messages)
    messages.append({'role': 'assistant', 'content': answer})
    return {'answer': answer, 'messages': len(messages)}


def ask(messages):
    """Asks the model, over any API that is compatible with OpenAI's chat completions."""
    request = urllib.request.Request(
        os.environ['MODEL_URL'] + '/chat/completions',
        data=json.dumps({'model': os.environ['MODEL'], 'messages': messages}).encode(),
        headers={'Content-Type': 'application/json', 'Authorization': 'Bearer ' + os.environ['MODEL_KEY']},
    )
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.load(response)['choices'][0]['message']['content']


def stand_in(messages):
    """Repeats the first message, which shows that the agent remembers the conversation."""
    if len(messages) == 1:
        return 'Tell me more.'
    return 'You began with: %s' % messages[0]['content']
