import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import format from './format.js';
import typescript from './typescript.js';

const TYPESCRIPT = /^file:[^?#]*\.[cm]?ts(?:[?#]|$)/;

/** The `load` hook of Node: TypeScript without its types. CommonJS is loaded as by `require`, which has its own. */
export async function load(url, context, nextLoad) {
  if (!TYPESCRIPT.test(url)) return nextLoad(url, context);
  const file = fileURLToPath(url);
  if (!format.isEcmaScriptModule(file)) return { format: 'commonjs', source: null, shortCircuit: true };
  return { format: 'module', source: typescript.withoutTypes(readFileSync(file, 'utf8'), file), shortCircuit: true };
}
