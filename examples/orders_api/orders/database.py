"""The tables of the program, and its sessions."""

import os
from decimal import Decimal
from typing import Final

from sqlalchemy import Numeric
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

URL: Final = os.environ.get("DATABASE_URL", "postgresql://localhost/orders")

engine = create_async_engine(URL.replace("postgresql://", "postgresql+psycopg://", 1))
sessions = async_sessionmaker(engine, class_=AsyncSession, expire_on_commit=False)


class Base(DeclarativeBase):
    """The tables of this program. Those of tickwork are in the same database."""


class Order(Base):
    """An order of a customer."""

    __tablename__ = "orders"

    id: Mapped[int] = mapped_column(primary_key=True)
    email: Mapped[str]
    total: Mapped[Decimal] = mapped_column(Numeric(10, 2))
    is_confirmed: Mapped[bool] = mapped_column(default=False)
