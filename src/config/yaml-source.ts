import { isMap, isScalar, LineCounter, type Node, parseDocument } from 'yaml';
import type { Given } from './config.ts';
import { SETTINGS } from './settings.ts';

/**
 * Reads the settings in the text of a YAML file, each with its line. `jwt: {issuer: x}` and `jwt.issuer: x`
 * are the same. Problems are whole sentences: errors of the parser, and values that are not maps.
 */
export function readYaml(content: string, file: string, base: string): { given: Given[]; problems: string[] } {
  const lines = new LineCounter();
  const document = parseDocument(content, { lineCounter: lines, uniqueKeys: true });
  if (document.errors.length > 0) {
    const problems = document.errors.map(error => {
      const line = lines.linePos(error.pos[0]).line;
      return `${file}:${line} is not YAML: ${error.message.split(/ at line |\n/)[0]}.`;
    });
    return { given: [], problems };
  }
  const given: Given[] = [];
  const problems: string[] = [];

  const isGroup = (path: string): boolean => Object.keys(SETTINGS).some(name => name.startsWith(`${path}.`));

  const walk = (node: Node | null, prefix: string): void => {
    if (node === null || (isScalar(node) && node.value === null)) return;
    if (!isMap(node)) {
      const what = prefix === '' ? 'the file' : prefix;
      problems.push(`${what} must be a map of settings (${file}:${lineOf(node, lines)}).`);
      return;
    }
    for (const pair of node.items) {
      const key = isScalar(pair.key) ? String(pair.key.value) : '';
      const path = prefix === '' ? key : `${prefix}.${key}`;
      const value = pair.value as Node | null;
      const where = `${file}:${lineOf(pair.key as Node, lines)}`;
      if (isGroup(path)) walk(value, path);
      else if (value !== null) {
        const yaml: unknown = value.toJS(document);
        if (yaml !== null || !(path in SETTINGS)) given.push({ path, value: { yaml }, where, base });
      } else if (!(path in SETTINGS)) given.push({ path, value: { yaml: null }, where, base });
    }
  };

  walk(document.contents as Node | null, '');
  return { given, problems };
}

function lineOf(node: Node | null, lines: LineCounter): number {
  return lines.linePos(node?.range?.[0] ?? 0).line;
}
