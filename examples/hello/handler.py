"""A resident agent that counts: what it keeps in `context.state` lives as long as the instance."""


def initialize(context):
    context.logger.info('ready')
    context.state['calls'] = 0


def handle(event, context):
    calls = context.state['calls'] = context.state.get('calls', 0) + 1
    context.logger.info('call %d', calls)
    return {'message': 'Hello, %s!' % event.get('name', 'world'), 'calls': calls}
