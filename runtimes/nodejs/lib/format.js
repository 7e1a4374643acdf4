'use strict';

const fs = require('node:fs');
const path = require('node:path');

/** What only the source of an ECMAScript module has at the beginning of a line. */
const MODULE_SYNTAX = /^\s*(?:import\s*[\w{*'"]|export\s*[\w{*])/m;

/** Whether Node takes a file for an ECMAScript module: by its extension, the nearest package.json, or its syntax. */
function isEcmaScriptModule(file) {
  if (/\.m[jt]s$/.test(file)) return true;
  if (/\.c[jt]s$/.test(file)) return false;
  const type = packageType(path.dirname(file));
  return type === undefined ? MODULE_SYNTAX.test(fs.readFileSync(file, 'utf8')) : type === 'module';
}

/** `type` of the nearest package.json. */
function packageType(directory) {
  for (let at = directory; ; at = path.dirname(at)) {
    try {
      return JSON.parse(fs.readFileSync(path.join(at, 'package.json'), 'utf8')).type;
    } catch (error) {
      // A broken one is the nearest all the same; Node says what is wrong with it.
      if (error.code === undefined || at === path.dirname(at)) return undefined;
    }
  }
}

module.exports = { isEcmaScriptModule };
