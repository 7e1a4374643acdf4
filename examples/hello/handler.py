"""A resident agent that counts: what it keeps in `context.state` lives as long as the instance."""


def initialize(context):
    context.state['calls'] = 0


def handle(event, context):
    context.state['calls'] += 1
    context.logger.info('call %d', context.state['calls'])
    return {'message': 'Hello, %s!' % event.get('name', 'world'), 'calls': context.state['calls']}
