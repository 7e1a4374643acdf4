/**
 * Prints the size of the parts of `src/`: `npm run size`. `npm run check` fails when one is above its bound.
 */
import { readFileSync } from 'node:fs';
import { dirname, join, normalize } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseSync } from 'oxc-parser';
import { trackedFiles } from './tracked.ts';

interface Measure {
  readonly name: string;
  readonly value: number;
  /** Largest allowed value. Lower it after each change that makes the value smaller. */
  readonly bound: number;
  /** Place that causes the value, or `''`. */
  readonly where: string;
}

interface SourceFile {
  readonly file: string;
  readonly lines: number;
  /** Files of `src/` that this file imports, types included. */
  readonly imports: readonly string[];
  readonly functions: readonly { readonly line: number; readonly lines: number }[];
  /** Number of class fields that hold a collection keyed by an id or an object of an instance. */
  readonly collections: number;
}

interface SyntaxNode {
  readonly type: string;
  readonly start: number;
  readonly end: number;
  readonly value?: unknown;
}

const FUNCTIONS = new Set(['FunctionDeclaration', 'FunctionExpression', 'ArrowFunctionExpression']);
/** A collection whose key is a string or an object; tables of drivers and owners have other keys. */
const KEYED = /^new (Counter\(|Weak(Map|Set)<|(Map|Set|Counter)<(string|\w*(Instance|Row|Runner))\b)/;
/** Files that keep the state of an instance. */
const INSTANCE_STATE = /^src\/(instances\/|agents\/|sandbox\/host\/(host-driver|disk-watch)\.ts)/;

/** Returns the measures of all tracked files of `src/` without tests. */
export async function measures(): Promise<readonly Measure[]> {
  const files = (await trackedFiles()).filter(({ file }) => /^src\/.*\.ts$/.test(file) && !file.endsWith('.test.ts'));
  const sources = files.map(({ file, path }) => read(file, readFileSync(path, 'utf8')));
  const longest = sources.reduce((one, other) => (other.lines > one.lines ? other : one));
  const functions = sources.flatMap(({ file, functions }) => functions.map(each => ({ ...each, file })));
  const largest = functions.reduce((one, other) => (other.lines > one.lines ? other : one));
  const circles = circlesOf(sources);
  const atRoot = sources.filter(({ file }) => dirname(file) === 'src').length;
  const withState = sources.filter(({ file, collections }) => INSTANCE_STATE.test(file) && collections > 0);
  return [
    measure(
      'collections keyed by instance in instances/, agents/ and the host driver',
      sum(withState, 'collections'),
      4,
      `${withState.length} files`,
    ),
    measure('lines of src/ without tests', sum(sources, 'lines'), 109_200, ''),
    measure('files of src/ without tests', sources.length, 791, ''),
    measure('lines of the longest function', largest.lines, 80, `${largest.file}:${largest.line}`),
    measure('functions of more than 80 lines', functions.filter(({ lines }) => lines > 80).length, 0, ''),
    measure('lines of the longest file', longest.lines, 449, longest.file),
    measure('circles of imports', circles.length, 0, circles.map(each => each.join(' ↔ ')).join('; ')),
    measure('files at the root of src/', atRoot, 2, ''),
  ];
}

/** Returns a sentence for each measure above its bound, or `''` when there is none. */
export async function findOversize(): Promise<string> {
  const above = (await measures()).filter(({ value, bound }) => value > bound);
  return above
    .map(({ name, value, bound, where }) => `${name}: ${value}, at most ${bound}. ${where}`.trim())
    .join('\n');
}

function measure(name: string, value: number, bound: number, where: string): Measure {
  return { name, value, bound, where };
}

function sum<K extends string>(all: readonly Readonly<Record<K, number>>[], field: K): number {
  return all.reduce((total, each) => total + each[field], 0);
}

function read(file: string, text: string): SourceFile {
  const { program, module } = parseSync(file, text);
  const requests = [...module.staticImports, ...module.staticExports.flatMap(({ entries }) => entries)]
    .map(each => each.moduleRequest?.value)
    .filter(request => request?.startsWith('.'));
  const functions: { line: number; lines: number }[] = [];
  let collections = 0;
  const lineAt = (offset: number) => text.slice(0, offset).split('\n').length;
  walk(program as unknown as SyntaxNode, node => {
    if (FUNCTIONS.has(node.type)) {
      const line = lineAt(node.start);
      functions.push({ line, lines: lineAt(node.end) - line + 1 });
    }
    const value = node.value as SyntaxNode | null | undefined;
    if (
      node.type === 'PropertyDefinition' &&
      value?.type === 'NewExpression' &&
      KEYED.test(text.slice(value.start, value.end))
    )
      collections += 1;
  });
  const imports = requests.map(request => normalize(join(dirname(file), request as string)));
  return { file, lines: text.split('\n').length - 1, imports, functions, collections };
}

function walk(node: SyntaxNode, visit: (node: SyntaxNode) => void): void {
  visit(node);
  for (const child of Object.values(node)) {
    for (const each of Array.isArray(child) ? child : [child]) {
      if (typeof each?.type === 'string') walk(each as SyntaxNode, visit);
    }
  }
}

/** Returns the sets of files that import each other, directly or through others (Tarjan's algorithm). */
function circlesOf(sources: readonly SourceFile[]): readonly (readonly string[])[] {
  const importsOf = new Map(sources.map(({ file, imports }) => [file, imports]));
  const order = new Map<string, number>();
  const low = new Map<string, number>();
  const stack: string[] = [];
  const circles: string[][] = [];
  const visit = (file: string) => {
    order.set(file, order.size);
    low.set(file, order.get(file) as number);
    stack.push(file);
    for (const next of importsOf.get(file) ?? []) {
      if (!importsOf.has(next)) continue;
      if (!order.has(next)) visit(next);
      if (stack.includes(next)) low.set(file, Math.min(low.get(file) as number, low.get(next) as number));
    }
    if (low.get(file) !== order.get(file)) return;
    const circle = stack.splice(stack.indexOf(file));
    if (circle.length > 1) circles.push(circle);
  };
  for (const { file } of sources) if (!order.has(file)) visit(file);
  return circles;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  for (const { name, value, bound, where } of await measures()) {
    console.log(
      `${String(value).padStart(7)}  of at most ${String(bound).padStart(6)}  ${name}${where === '' ? '' : ` (${where})`}`,
    );
  }
}
