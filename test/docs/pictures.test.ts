import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { ROOT } from '../../scripts/command.ts';
import { RECORDING } from '../../scripts/pictures/age.ts';
import { type Recording, recordTerminal } from '../../scripts/pictures/terminal-recording.ts';

const RECORD_MS = 120_000;

test(
  'the recorded terminal of README.md shows the current output of its commands',
  async () => {
    const recorded = JSON.parse(readFileSync(join(ROOT, RECORDING), 'utf8')) as Recording;
    expect(textsOf(await recordTerminal())).toEqual(textsOf(recorded));
  },
  RECORD_MS,
);

/** Returns the recorded lines without parts that vary: times, ids, and warnings about missing isolation. */
function textsOf({ steps }: Recording): readonly string[] {
  return steps.flatMap(({ command, lines }) => [
    `$ ${command}`,
    ...lines
      .filter(({ text }) => !text.startsWith('warning: '))
      .map(({ text }) => text.replaceAll(/[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}/g, 'ID')),
  ]);
}
