import type { Command } from 'commander';
import { addClientOptions, type ClientOptions } from '../shared/client.ts';
import type { Context } from '../shared/io.ts';
import type { Explanation } from './explanation.ts';

interface ExplainOptions extends ClientOptions {
  readonly namespace: string;
  readonly json?: boolean;
}

type Explain = (io: Context['io'], name: string, options: ExplainOptions) => Promise<Explanation>;

/** Adds `rookery explain`, which says in sentences why something is in its state. */
export function register(program: Command, context: Context): void {
  const explain = program
    .command('explain')
    .summary('say why something is in its state, and what helps')
    .description(
      'Says in sentences why something is in its state, what it waits for and what happened before, and names the command that helps.\n\n' +
        '  rookery explain agent hello',
    )
    .enablePositionalOptions();
  const add = (kind: string, article: string, argument: string, load: () => Promise<Explain>) => {
    const command = explain
      .command(kind)
      .summary(`explain ${article} ${kind}`)
      .description(`Explains the state of ${article} ${kind}.`)
      .argument(`<${kind}>`, argument);
    if (kind === 'agent') command.option('-n, --namespace <namespace>', 'the namespace of the name', 'default');
    command.option('--json', 'print the facts as JSON').action(async (name, options) => {
      const [run, { printExplanation }] = await Promise.all([load(), import('./explanation.ts')]);
      printExplanation(context.io, await run(context.io, name, options), options.json === true);
    });
    addClientOptions(command);
  };
  add('agent', 'an', 'the id of the agent, or its name', async () => (await import('./agent.ts')).explainAgent);
  const ofFunction = 'hello, demo@hello or 0@demo@hello, with :<version> or the latest, or a URN';
  add('function', 'a', ofFunction, async () => (await import('./function.ts')).explainFunction);
  add('job', 'a', 'its id', async () => (await import('./job.ts')).explainJob);
  add('call', 'a', 'its id, or the id of an asynchronous call', async () => (await import('./call.ts')).explainCall);
}
