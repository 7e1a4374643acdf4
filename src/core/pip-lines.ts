const FLAG = /^(-[rcef]|--(?:requirement|constraint|editable|find-links))(?:[=\s]+|(?=[^\s=-]))?(.*)$/s;
const SHORT = /^-[rcef]/;
const URL_LIKE = /^(?:[a-z][a-z0-9+.-]*:|\/|~)/i;
const ARCHIVE = /\.(?:whl|zip|tar|tgz|tbz|txz|tar\.(?:gz|bz2|xz|lzma|Z))$/i;
/** Ray replaces this word with the working directory before it calls pip. */
const WORKING_DIR = 'RAY_RUNTIME_ENV_CREATE_WORKING_DIR';

/** Returns true if a line of a requirements list names a file relative to the working directory. */
export function namesFile(line: string): boolean {
  const text = line.replace(/(^|\s)#.*$/, '').trim();
  if (text.includes(WORKING_DIR)) return true;
  const flag = FLAG.exec(text);
  if (flag !== null && isFlag(flag)) return flag[2] === '' || isRelative(flag[2] ?? '');
  if (text.startsWith('-')) return false;
  const [path = ''] = text.split(/\s*[;@[]|\s/);
  return isRelative(path) && (/^\.|\//.test(path) || ARCHIVE.test(path));
}

/** Returns the index of the first pip argument that names such a file, or -1. */
export function indexOfFile(args: readonly string[]): number {
  return args.findIndex((text, at) => {
    const flag = FLAG.exec(text);
    const isAlone = flag !== null && isFlag(flag) && flag[2] === '';
    if (isAlone) return isRelative(args[at + 1] ?? '');
    // The value of another option, `--cache-dir ./cache`.
    const isValue = !text.startsWith('-') && !ARCHIVE.test(text) && args[at - 1]?.startsWith('-') === true;
    return (!isValue || text.includes(WORKING_DIR)) && namesFile(text);
  });
}

/** Returns true for a flag that names a file: `-rfile` is one, `--requirements` is none. */
function isFlag([text, flag = '', value = '']: RegExpExecArray): boolean {
  return SHORT.test(flag) || value === '' || /^[=\s]/.test(text.slice(flag.length));
}

function isRelative(path: string): boolean {
  return path.includes(WORKING_DIR) || (path !== '' && !URL_LIKE.test(path));
}
