/** Stands in the place of a path of the service's own. */
const HIDDEN = '[a path of the service]';

/**
 * Takes paths below the service's own directories out of a text: callers have no use for them, and strangers should not learn them. Those
 * that the caller has sent (`sent`: the body of the request) stay.
 */
export function hidingOwnPaths(directories: readonly string[]): (text: string, sent?: unknown) => string {
  const own = directories.filter(directory => directory.length > 1).map(escaped);
  if (own.length === 0) return text => text;
  const pattern = new RegExp(`(?:${own.join('|')})(?![\\w.-])[^\\s"'\`,;:)\\\\]*`, 'g');
  return (text, sent) => text.replace(pattern, path => (Buffer.isBuffer(sent) && sent.includes(path) ? path : HIDDEN));
}

function escaped(directory: string): string {
  return directory.replace(/\/+$/, '').replace(/[.*+?^${}()|[\]\\]/g, '\\$&');
}
