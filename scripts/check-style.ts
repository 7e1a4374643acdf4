/**
 * Checks the words of the repository (`scripts/style.ts`). An area may have as many findings as `BOUNDS`
 * says; lower a bound after each rewrite. `npm run style` prints counts, or the findings of the areas and
 * files that its arguments name.
 */
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { run } from './command.ts';
import { type Finding, findingsOfOther, findingsOfScript } from './style.ts';
import { trackedFiles } from './tracked.ts';

/** The most findings of each area; an area that is not listed may have none. */
const BOUNDS: Readonly<Record<string, number>> = {};
/** Copies of files, and files that programs write. */
const NOT_OURS = /(^|\/)(generated|node_modules|dist|_sync)\b|types\.py$/;

/** Returns the area of a file: a folder of `src/` or of the root, tests apart. */
function areaOf(file: string): string {
  const [first = '', second = ''] = file.split('/');
  const area = ['src', 'runtimes', 'clients'].includes(first) ? `${first}/${second}` : first;
  return file.endsWith('.test.ts') && first === 'src' ? `${area} tests` : area;
}

async function findings(): Promise<ReadonlyMap<string, readonly Finding[]>> {
  const byArea = new Map<string, Finding[]>();
  for (const { file, path } of await trackedFiles()) {
    if (NOT_OURS.test(file)) continue;
    const isScript = /\.(tsx?|m?js)$/.test(file);
    if (!isScript && !/\.(py|c|h|go|java)$/.test(file)) continue;
    const text = readFileSync(path, 'utf8');
    const found = isScript ? findingsOfScript(file, text) : findingsOfOther(file, text);
    if (found.length > 0) byArea.set(areaOf(file), [...(byArea.get(areaOf(file)) ?? []), ...found]);
  }
  return byArea;
}

/** Since when subjects of commits have at most 72 characters. */
const SUBJECTS_SINCE = '2026-11-28T17:30:00Z';
const MOST_SUBJECT_CHARS = 72;

/** Returns the subjects of commits that are too long. A copy without a history has none. */
async function longSubjects(): Promise<readonly string[]> {
  const args = ['-c', 'safe.directory=*', 'log', `--since=${SUBJECTS_SINCE}`, '--format=%h %s'];
  const { code, output } = await run('git', args, { capture: true });
  if (code !== 0) return [];
  const isLong = (line: string) => line.length - line.indexOf(' ') - 1 > MOST_SUBJECT_CHARS;
  return output.split('\n').filter(isLong);
}

/**
 * Returns a sentence for each area with more findings than its bound, and the findings of areas without a
 * bound. Returns `''` when there is none.
 */
export async function findBadWords(): Promise<string> {
  const lines: string[] = [];
  for (const [area, found] of await findings()) {
    const bound = BOUNDS[area] ?? 0;
    if (found.length <= bound) continue;
    lines.push(`${area}: ${found.length} findings, at most ${bound}; npm run style -- ${area} prints them`);
    if (bound === 0) lines.push(...found.slice(0, 20).map(shown));
  }
  for (const line of await longSubjects())
    lines.push(`commit subject of more than ${MOST_SUBJECT_CHARS} characters: ${line}`);
  return lines.join('\n');
}

function shown({ rule, file, line, text }: Finding): string {
  return `  ${file}:${line}: ${rule}: ${text}`;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const wanted = process.argv.slice(2);
  for (const [area, found] of [...(await findings())].toSorted(([, one], [, other]) => other.length - one.length)) {
    const named = found.filter(({ file }) => wanted.some(each => area === each || file.startsWith(each)));
    if (wanted.length === 0)
      console.log(`${String(found.length).padStart(6)}  of at most ${BOUNDS[area] ?? 0}  ${area}`);
    for (const each of named) console.log(shown(each));
  }
}
