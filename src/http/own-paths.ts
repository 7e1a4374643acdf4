/** Text that replaces a path of the service. */
const HIDDEN = '[a path of the service]';

/**
 * Returns a function that replaces paths below `directories` in a text.
 * Clients have no use for these paths, and must not learn them. Paths that the client itself sent (`sent`:
 * the request's body) stay.
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
