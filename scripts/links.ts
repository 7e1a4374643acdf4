import { existsSync, readFileSync, statSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { anchorsOf } from './doc-pages.ts';
import { trackedFiles } from './tracked.ts';

/** Link in Markdown to a file, to a heading of a file, or to a heading of the same page. */
const LINK = /\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)\s]*))?\)/g;
const CODE = /^```[\s\S]*?^```/gm;

/** Returns a line for each link of a tracked Markdown file whose file or heading does not exist, or `''`. */
export async function findBrokenLinks(): Promise<string> {
  const broken: string[] = [];
  const anchors = new Map<string, ReadonlySet<string>>();
  const hasAnchor = (page: string, anchor: string) => {
    let known = anchors.get(page);
    if (known === undefined) {
      known = anchorsOf(readFileSync(page, 'utf8'));
      anchors.set(page, known);
    }
    return known.has(anchor);
  };
  for (const { file, path } of await trackedFiles()) {
    if (!file.endsWith('.md')) continue;
    const text = readFileSync(path, 'utf8').replace(CODE, block => block.replaceAll(/[^\n]/g, ''));
    for (const [index, line] of text.split('\n').entries()) {
      for (const [, target = '', anchor] of line.matchAll(LINK)) {
        const place = target === '' ? path : join(dirname(path), target);
        if (!existsSync(place)) broken.push(`${file}:${index + 1}: ${target} does not exist`);
        else if (anchor !== undefined && place.endsWith('.md') && statSync(place).isFile() && !hasAnchor(place, anchor))
          broken.push(`${file}:${index + 1}: ${target || 'this page'} has no heading #${anchor}`);
      }
    }
  }
  return broken.join('\n');
}
