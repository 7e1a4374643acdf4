import { existsSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { trackedFiles } from './tracked.ts';

const LINK = /\]\((?!https?:|mailto:|#)([^)#\s]+)(?:#[^)\s]*)?\)/g;

/** Every link of a tracked Markdown file to a file that is not there; `''` when there is none. */
export async function findBrokenLinks(): Promise<string> {
  const broken: string[] = [];
  for (const { file, path } of await trackedFiles()) {
    if (!file.endsWith('.md')) continue;
    readFileSync(path, 'utf8')
      .split('\n')
      .forEach((line, index) => {
        for (const [, target = ''] of line.matchAll(LINK)) {
          if (!existsSync(join(dirname(path), target))) broken.push(`${file}:${index + 1}: ${target} is not there`);
        }
      });
  }
  return broken.join('\n');
}
