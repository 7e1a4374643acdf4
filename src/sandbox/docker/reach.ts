import type Docker from 'dockerode';

/** Returns true if this server may enter the namespaces of a container. */
export function mayEnter(): boolean {
  return process.platform === 'linux' && process.getuid?.() === 0;
}

/** Returns the container's address in its network, or null when it has none. */
export function addressOf({ NetworkSettings: settings }: Docker.ContainerInspectInfo): string | null {
  return Object.values(settings.Networks ?? {}).find(({ IPAddress: address }) => address !== '')?.IPAddress ?? null;
}
