/**
 * Makes the packages below the directory of the first argument importable: a module finds only packages above
 * its own directory. `node --import packages.mjs FLOW DIRECTORY`.
 */
import { register } from 'node:module';

const home = new URL(`file://${process.argv[2]}/`);
const hooks = `export function resolve(name, context, next) {
  const isPackage = !/^([./]|node:|file:)/.test(name) && !context.parentURL?.includes('/node_modules/');
  return next(name, isPackage ? { ...context, parentURL: ${JSON.stringify(new URL('main.mjs', home).href)} } : context);
}`;
register(`data:text/javascript,${encodeURIComponent(hooks)}`);
