import { randomBytes } from 'node:crypto';
import { type ExecutorDefaults, readAgentCreate } from '../../core/agent.ts';
import { codeUrl } from '../../core/code-package.ts';
import { checkTemplateName, parseTemplateName } from '../../core/e2b-templates.ts';
import { invalidRequest, notFound, ServiceError } from '../../core/error.ts';
import type { InstanceSpec, MountSpec } from '../../core/instance.ts';
import { LIMITS } from '../../core/limits.ts';
import type { TemplateSpec } from '../../core/template.ts';
import type { TemplateBuild, Templates } from '../../registry/templates.ts';
import { FILES_TARGET } from '../../templates/built.ts';
import { findTemplate } from '../../templates/templates.ts';
import type { ImageCatalog } from '../images.ts';

/** Characters of a name in messages. */
const MAX_SHOWN_CHARS = 80;
/** Namespace of the agents that creates of this protocol make. */
const NAMESPACE = 'e2b';

/** A template as a create names it. */
export type FoundTemplate =
  | { readonly kind: 'service'; readonly name: string }
  | { readonly kind: 'built'; readonly build: TemplateBuild }
  /** An image of the Docker daemon. */
  | { readonly kind: 'image'; readonly reference: string };

export interface TemplateSources {
  readonly templates: Pick<Templates, 'find'>;
  readonly images: ImageCatalog;
}

/**
 * Returns the template that `sent` names: one of the service, the build with its tag, or an image. Fails with
 * `invalid_request`, or with `not_found` if the Docker daemon has no such image.
 */
export async function resolveTemplate(
  { templates, images }: TemplateSources,
  tenant: string,
  sent: string,
): Promise<FoundTemplate> {
  const { name, tag } = parseTemplateName(sent);
  if (findTemplate(name) !== undefined) return { kind: 'service', name };
  const build = isName(name) ? await templates.find(tenant, name, tag) : null;
  if (build !== null) return { kind: 'built', build };
  const state = await images.state(sent);
  if (state === 'present') return { kind: 'image', reference: sent };
  const shown = sent.slice(0, MAX_SHOWN_CHARS);
  if (state === 'unavailable') {
    throw invalidRequest(`invalid request body: there is no template ${JSON.stringify(shown)}`);
  }
  throw notFound(
    `there is no template and no image ${JSON.stringify(shown)}; an image must be on the machine of the service: docker pull ${shown}`,
  );
}

function isName(name: string): boolean {
  try {
    checkTemplateName({ name }, []);
    return true;
  } catch (error) {
    if (error instanceof ServiceError) return false;
    throw error;
  }
}

export interface WantedSandbox {
  readonly template: FoundTemplate;
  readonly env: Readonly<Record<string, string>>;
  readonly labels: Readonly<Record<string, string>>;
  readonly ttlSeconds: number;
  readonly onExpiry: 'pause' | 'delete';
}

/** Returns the spec of a sandbox. Fails with `invalid_request`. */
export function sandboxSpec(wanted: WantedSandbox, tenant: string, executors: ExecutorDefaults): InstanceSpec {
  const { template } = wanted;
  if (template.kind === 'service') return specOf(wanted, { template: template.name }, null, tenant, executors);
  if (template.kind === 'image') return specOf(wanted, { image: template.reference }, null, tenant, executors);
  const { name, sha256, spec } = template.build;
  const read = specOf(
    { ...wanted, env: { ...spec.env, ...wanted.env } },
    spec.image === undefined ? { template: spec.base } : { image: spec.image },
    spec,
    tenant,
    executors,
  );
  if (spec.image === undefined && read.rootfs.type !== 'host') throw notOnHost();
  const { base, user, workingDir, startCommand, readyCommand } = spec;
  return {
    ...read,
    template: name,
    built: { base, user, workingDir, startCommand, readyCommand },
    mounts: [...read.mounts, ...filesMount(sha256)],
  };
}

/** Returns a name that no other sandbox has. */
export function newSandboxName(): string {
  return `sandbox-${randomBytes(8).toString('hex')}`;
}

/** Returns the mount of a template's files; none without files. */
export function filesMount(sha256: string): readonly MountSpec[] {
  return sha256 === '' ? [] : [{ source: codeUrl(sha256), target: FILES_TARGET, readonly: true }];
}

/** Refuses a template of the host's files where sandboxes have images of their own. */
export function notOnHost(): ServiceError {
  return invalidRequest('templates of the service are for process sandboxes only: begin with an image instead');
}

function specOf(
  { env, labels, ttlSeconds, onExpiry }: WantedSandbox,
  origin: { readonly template: string } | { readonly image: string },
  size: Pick<TemplateSpec, 'cpuMillis' | 'memoryMb'> | null,
  tenant: string,
  executors: ExecutorDefaults,
): InstanceSpec {
  const body = {
    namespace: NAMESPACE,
    name: newSandboxName(),
    ...origin,
    ...(size && {
      runtime_spec: {
        runtime: 'python3',
        rootfs: { imageurl: 'template' in origin ? origin.template : origin.image },
        cpu: size.cpuMillis ?? LIMITS.cpuMillis.default,
        memory: size.memoryMb ?? LIMITS.memoryMb.default,
      },
    }),
    env_vars: env,
    labels,
    ttl_seconds: ttlSeconds,
    on_expiry: onExpiry,
  };
  const create = readAgentCreate(body, tenant, executors);
  if (create.mode !== 'inline') throw invalidRequest('invalid request body: templateID names no template');
  return create.spec;
}
