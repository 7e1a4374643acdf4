/** Settings of a template that a tenant has built, in addition to its files. */
export interface BuiltTemplate {
  /** The template of the service that it begins with, whose programs run in its sandboxes; `''`: an image. */
  readonly base: string;
  /** The default account of its sandboxes. */
  readonly user: string;
  /** The directory in which commands of that account start; `''`: its home. */
  readonly workingDir: string;
  /** A command that each sandbox starts; `''`: none. */
  readonly startCommand: string;
  /** A command that succeeds when the sandbox is ready; `''`: it is ready at once. */
  readonly readyCommand: string;
}

/** Everything about a build except its files. Stored as JSON. */
export interface TemplateSpec extends BuiltTemplate {
  readonly env: Readonly<Record<string, string>>;
  /** The image that its sandboxes start from. Absent: they start from the files of the host. */
  readonly image?: string;
  /** null: the default of sandboxes. */
  readonly cpuMillis: number | null;
  readonly memoryMb: number | null;
  /** The sandbox whose files it has. Absent: the template was built. */
  readonly snapshotOf?: string;
  /** True for a snapshot to which the client gave a name. */
  readonly isNamed?: boolean;
  /** Tags of the build when it is ready. Absent: none. */
  readonly tags?: readonly string[];
}

/** The tag of a name without a tag. */
export const DEFAULT_TAG = 'default';
