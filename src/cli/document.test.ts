import { expect, test } from 'vitest';
import { cliPage, commandsOf } from './document.ts';
import { createWholeProgram } from './program.ts';
import { processIo } from './shared/io.ts';

const context = { io: processIo(new AbortController().signal), version: '', exitCode: 0 };
const page = await cliPage(context);
const commands = commandsOf(await createWholeProgram(context));
const settings = sectionOf('## Settings');

test.each(commands)('the section of $path names each argument and option', ({ path, command }) => {
  const section = sectionOf(`### rookery ${path}`);
  const text = section.includes('[settings](#settings)') ? `${section}${settings}` : section;
  for (const argument of command.registeredArguments) expect(text).toContain(argument.name());
  for (const option of command.options.filter(({ helpGroupHeading }) => helpGroupHeading === undefined)) {
    expect(text).toContain(option.long);
  }
});

test('the page describes an option of many commands once', () => {
  expect(page.split('| `-n, --namespace <namespace>` | the namespace of the name (default')).toHaveLength(2);
});

/** Returns the lines between a heading and the next heading. */
function sectionOf(heading: string): string {
  const [, after = ''] = page.split(`${heading}\n`);
  return after.split(/^#{2,3} /m)[0] ?? '';
}
