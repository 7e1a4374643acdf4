import { Argument, type Command } from 'commander';
import { usageError } from '../shared/exit.ts';
import type { Context } from '../shared/io.ts';
import { oneOf } from '../shared/print.ts';
import { TEMPLATE_NAMES } from './init-names.ts';

/** Adds the command `rookery init`, which writes rookery.yaml and a small program. */
export function register(program: Command, context: Context): void {
  program
    .command('init')
    .summary('make a directory that can be deployed')
    .description(
      `Writes rookery.yaml and a small program: ${oneOf(TEMPLATE_NAMES)}. Files that are there are never overwritten.\n\n` +
        '  rookery init python hello\n' +
        '  cd hello && rookery deploy',
    )
    .addArgument(new Argument('[template]', 'what kind of program').choices(TEMPLATE_NAMES))
    .argument('[directory]', 'where; else the working directory')
    .action(async (template, directory) => {
      if (template === undefined) {
        throw usageError(`Name a template: ${oneOf(TEMPLATE_NAMES)}. For example: rookery init python hello`);
      }
      const { writeTemplate } = await import('./init-templates.ts');
      await writeTemplate(context.io, template, directory ?? '.');
    });
}
