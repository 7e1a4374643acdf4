"""An agent that counts its calls. `context.state` keeps its values until the instance stops."""


def initialize(context):
    context.logger.info('ready')
    context.state['calls'] = 0


def handle(event, context):
    calls = context.state['calls'] = context.state.get('calls', 0) + 1
    context.logger.info('call %d', calls)
    return {'message': 'Hello, %s!' % event.get('name', 'world'), 'calls': calls}
