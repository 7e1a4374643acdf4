/**
 * Returns the group of a remote address for counting: the IPv4 address, or the /64 network of an IPv6
 * address.
 * A client with one address of a /64 network usually has all of them.
 * null: loopback, which is this machine or a proxy on it that serves many clients.
 */
export function addressGroup(address: string | undefined): string | null {
  if (address === undefined || address === '::1') return null;
  const ipv4 = /^(?:::ffff:)?(\d+\.\d+\.\d+\.\d+)$/i.exec(address)?.[1];
  if (ipv4 !== undefined) return ipv4.startsWith('127.') ? null : ipv4;
  const [before = '', after] = (address.split('%')[0] as string).split('::');
  const first = before.split(':').filter(Boolean);
  const last = (after ?? '').split(':').filter(Boolean);
  const zeros = Array.from({ length: Math.max(0, 8 - first.length - last.length) }, () => '0');
  return [...first, ...zeros, ...last].slice(0, 4).join(':');
}
