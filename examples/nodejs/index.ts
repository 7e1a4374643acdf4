/** A resident agent that counts, in TypeScript: nothing is built, and what it keeps in `context.state` lives as long as the instance. */
import type { Context } from '@rookery/runtime';

interface Event {
  readonly name?: string;
}

export function initialize(context: Context): void {
  context.logger.info('ready');
  context.state.calls = 0;
}

export async function handle(event: Event, context: Context): Promise<unknown> {
  context.state.calls += 1;
  return { message: `Hello, ${event.name ?? 'world'}!`, calls: context.state.calls };
}

/** For callers that take a stream: each word by itself. Others get an array. */
export async function* words({ text }: { readonly text: string }): AsyncGenerator<string, void> {
  for (const word of text.split(' ')) yield word;
}
