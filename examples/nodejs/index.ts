/** An agent in TypeScript that counts its calls. `context.state` lasts until the instance stops. */
import type { Context } from '@rookery/runtime';

interface Event {
  readonly name?: string;
}

export function initialize(context: Context): void {
  context.logger.info('ready');
  context.state.calls = 0;
}

export async function handle(event: Event, context: Context): Promise<unknown> {
  // The default 0 makes the handler work without the initializer, too.
  const calls = Number(context.state.calls ?? 0) + 1;
  context.state.calls = calls;
  return { message: `Hello, ${event.name ?? 'world'}!`, calls };
}

/** Streams the words of a text one by one. Callers that do not accept a stream get an array. */
export async function* words({ text }: { readonly text: string }): AsyncGenerator<string, void> {
  for (const word of text.split(' ')) yield word;
}
