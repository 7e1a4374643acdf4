import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import format from './format.js';
import typescript from './typescript.js';

const TYPESCRIPT = /^file:[^?#]*\.[cm]?ts(?:[?#]|$)/;

/**
 * Node's `load` hook, which removes the types of TypeScript. For CommonJS it leaves the work to the hooks of
 * `require`.
 */
export async function load(url, context, nextLoad) {
  if (!TYPESCRIPT.test(url)) return nextLoad(url, context);
  const file = fileURLToPath(url);
  if (!format.isEcmaScriptModule(file)) return { format: 'commonjs', source: null, shortCircuit: true };
  return { format: 'module', source: typescript.withoutTypes(readFileSync(file, 'utf8'), file), shortCircuit: true };
}
