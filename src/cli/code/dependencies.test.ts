import { text } from 'node:stream/consumers';
import { expect, test } from 'vitest';
import { linesToShow } from './dependencies.ts';

async function* pieces(...parts: readonly string[]) {
  for (const part of parts) yield Buffer.from(part);
}

test("linesToShow leaves out pip's progress and keeps errors when lines arrive in pieces", async () => {
  const log = pieces(
    'Collecting mcp>=1.10 (from -r requirements.txt (line 1))\n  Downlo',
    'ading mcp-1.30.0-py3-none-any.whl (234 kB)\n     ━━━━━━━━ 234.6/234.6 kB 1.5 MB/s eta 0:00:00\n',
    'Installing collected packages: idna\nSuccessfully installed idna-3.20\nERROR: No matching',
    ' distribution',
  );
  expect(await text(linesToShow(log))).toBe('Successfully installed idna-3.20\nERROR: No matching distribution\n');
});

test('linesToShow removes control characters of install scripts', async () => {
  expect(await text(linesToShow(pieces('\u001b[31mred\u001b[0m\n')))).not.toContain('\u001b');
});
