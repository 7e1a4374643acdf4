import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { ROOT } from './command.ts';

/**
 * Files that repeat the version of package.json, with the text before it. `npm run generate` updates them.
 * A release therefore changes the version in one line.
 */
const COPIES: readonly { readonly file: string; readonly before: RegExp }[] = [
  { file: 'README.md', before: /=unconfined rookery:/g },
  { file: 'clients/python/pyproject.toml', before: /^version = "/gm },
  { file: 'clients/typescript/package.json', before: /^ {2}"version": "/gm },
  { file: 'deploy/chart/Chart.yaml', before: /^(?:appV|v)ersion: /gm },
  { file: 'deploy/compose.yaml', before: /^ {4}image: rookery:/gm },
  { file: 'docs/start/install.md', before: /\brookery[-_:](?=\d)/g },
  {
    file: 'package-lock.json',
    before: /^(?:\{\n {2}"name": "rookery",\n {2}| {4}"": \{\n {6}"name": "rookery",\n {6})"version": "/gm,
  },
  { file: 'runtimes/go/server.go', before: /"rookery-runtime-go\//g },
  { file: 'runtimes/java/pom.xml', before: /<artifactId>rookery-runtime<\/artifactId>\n {2}<version>/g },
  { file: 'runtimes/java/src/main/java/dev/rookery/runtime/Server.java', before: /"rookery-runtime-java\//g },
  { file: 'runtimes/nodejs/lib/server.js', before: /'rookery-runtime-nodejs\//g },
  { file: 'runtimes/nodejs/package.json', before: /^ {2}"version": "/gm },
  { file: 'runtimes/python/rookery_runtime/version.py', before: /^__version__ = '/gm },
];

export const VERSION = (JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as { version: string }).version;

/** Files that contain the version, and the function that makes each. */
export const VERSIONED_FILES = COPIES.map(({ file, before }) => ({
  file,
  make: async () => withVersion(readFileSync(join(ROOT, file), 'utf8'), before, file, VERSION),
}));

/**
 * Returns `content` with `version` after every match of `before`. Throws if nothing matches, because the
 * file's form has changed.
 */
export function withVersion(content: string, before: RegExp, file: string, version: string): string {
  const pattern = new RegExp(`(${before.source})\\d+\\.\\d+\\.\\d+(?:-[\\w.]+)?`, before.flags);
  if (content.search(pattern) === -1) throw new Error(`${file} has no version where scripts/versions.ts looks for it`);
  return content.replace(pattern, (_, start: string) => start + version);
}
