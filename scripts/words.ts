/**
 * Prints the number of words of each document, of each folder and of all: `npm run words`. A word has a
 * letter or a digit.
 */
import { readFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { trackedFiles } from './tracked.ts';

const PAGES = ['README.md', 'ARCHITECTURE.md', 'CONTRIBUTING.md', 'CHANGELOG.md'];

const pages: { file: string; words: number }[] = [];
for (const { file, path } of await trackedFiles()) {
  if (!PAGES.includes(file) && !(file.startsWith('docs/') && file.endsWith('.md'))) continue;
  const words = readFileSync(path, 'utf8').split(/\s+/);
  pages.push({ file, words: words.filter(word => /[\p{L}\p{N}]/u.test(word)).length });
}

const folders = new Map<string, number>();
for (const { file, words } of pages) folders.set(dirname(file), (folders.get(dirname(file)) ?? 0) + words);

for (const { file, words } of pages.toSorted((a, b) => b.words - a.words)) console.log(line(words, file));
console.log();
for (const [folder, words] of folders) console.log(line(words, `${folder}/`));
console.log(
  line(
    pages.reduce((sum, { words }) => sum + words, 0),
    'all',
  ),
);

function line(words: number, name: string): string {
  return `${String(words).padStart(7)}  ${name}`;
}
