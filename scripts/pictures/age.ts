import { createHash } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { ROOT } from '../command.ts';
import { trackedFiles } from '../tracked.ts';
import { type Recording, TERMINAL_COMMANDS } from './terminal-recording.ts';
import { terminalSvg } from './terminal-svg.ts';

export const PICTURES = 'docs/pictures';
export const RECORDING = `${PICTURES}/terminal.json`;
export const TERMINAL = `${PICTURES}/terminal.svg`;
/** File with the hash of the sources from which the dashboard's pictures were taken. */
export const DASHBOARD_AGE = `${PICTURES}/dashboard.sha256`;
const MAX_BYTES = 300_000;

/** Returns a hash of the dashboard's sources, which is equal on every machine. */
export async function dashboardHash(): Promise<string> {
  const hash = createHash('sha256');
  const files = (await trackedFiles()).filter(({ file }) => /^dashboard\/.*\.(tsx?|css|svg|html)$/.test(file));
  for (const { file, path } of files.filter(({ file }) => !file.includes('.test.'))) {
    hash.update(`${file}\0`).update(readFileSync(path)).update('\0');
  }
  return hash.digest('hex');
}

/** Returns the pictures that are stale or too large, one line each, or `''`. Needs no browser. */
export async function findStalePictures(): Promise<string> {
  const problems: string[] = [];
  if (read(DASHBOARD_AGE).trim() !== (await dashboardHash())) {
    problems.push(`the pictures of the dashboard are older than its sources: run npm run pictures`);
  }
  const recording = JSON.parse(read(RECORDING) || '{"steps":[]}') as Recording;
  if (read(TERMINAL) !== terminalSvg(recording)) {
    problems.push(`${TERMINAL} is not what terminal-svg.ts makes of ${RECORDING}: run npm run pictures -- terminal`);
  }
  const commands = recording.steps.map(({ command }) => command);
  if (JSON.stringify(commands) !== JSON.stringify(TERMINAL_COMMANDS.map(([command]) => command))) {
    problems.push(`${RECORDING} has other commands than terminal-recording.ts: run npm run pictures`);
  }
  for (const { file, path } of await trackedFiles()) {
    if (!file.startsWith(`${PICTURES}/`)) continue;
    const bytes = readFileSync(path).length;
    if (bytes > MAX_BYTES) problems.push(`${file} has ${bytes} bytes, more than ${MAX_BYTES}`);
  }
  return problems.join('\n');
}

function read(file: string): string {
  return existsSync(join(ROOT, file)) ? readFileSync(join(ROOT, file), 'utf8') : '';
}
