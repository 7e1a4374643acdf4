import type { Command } from 'commander';
import { contextInForce, readContexts, writeContexts } from '../shared/contexts.ts';
import { usageError } from '../shared/exit.ts';
import type { Context } from '../shared/io.ts';

export function register(program: Command, { io }: Context): void {
  program
    .command('logout')
    .summary('forget the token of a server')
    .description(
      'Forgets the token of the current or the named context. The context stays until "rookery context remove".',
    )
    .argument('[context]', 'the name of a context')
    .action(async (given: string | undefined) => {
      const found = await contextInForce(given, io.environment);
      if (found === null)
        throw usageError(
          'There is no current context, so there is no token to forget. "rookery context list" shows all contexts.',
        );
      const { name, server } = found;
      const { token: _, ...rest } = server;
      const contexts = await readContexts(io.environment);
      await writeContexts(io.environment, { ...contexts, servers: { ...contexts.servers, [name]: rest } });
      io.err.write(`The token of ${name} is forgotten here. It stays valid until it expires.\n`);
    });
}
